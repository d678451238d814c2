"""The columns that show usage, for pods and nodes alike."""

from collections.abc import Callable
from typing import Any

from kedge.api.metrics_v1alpha1.windows import Metrics, Windows, cores, megabytes
from kedge.api.presentation import Column, name_column
from kedge.metrics.windows import MAIN

WindowsOf = Callable[[Any], Windows]


def usage_columns(windows_of: WindowsOf) -> tuple[Column, ...]:
    """Name, what was used of late, and for those who want to know more what was before."""

    def cell(length: str, statistic: str, resource: str) -> Callable[[Any], str]:
        shown = cores if resource == "cpu" else megabytes
        return lambda obj: shown(_amounts(windows_of(obj), length, statistic).get(resource))

    return (
        name_column(),
        Column(
            name="CPU",
            description="Cores used on average during the last minute.",
            cell=cell(MAIN, "mean", "cpu"),
        ),
        Column(
            name="MEM",
            description="Memory used on average during the last minute.",
            cell=cell(MAIN, "mean", "memory"),
        ),
        Column(
            name="CPU 1h",
            description="Cores used on average during the last hour.",
            cell=cell("1h", "mean", "cpu"),
            priority=1,
        ),
        Column(
            name="MEM 1h",
            description="Memory used on average during the last hour.",
            cell=cell("1h", "mean", "memory"),
            priority=1,
        ),
        Column(
            name="CPU 95th 1d",
            description="Cores that 95 of 100 samples of the last day did not exceed.",
            cell=cell("1d", "ninety_fifth", "cpu"),
            priority=1,
        ),
        Column(
            name="MEM max 1d",
            description="The most memory used during the last day.",
            cell=cell("1d", "max", "memory"),
            priority=1,
        ),
    )


def _amounts(windows: Windows, length: str, statistic: str) -> Any:
    return getattr(windows.get(length, Metrics()), statistic)
