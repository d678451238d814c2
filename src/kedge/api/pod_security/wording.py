"""Words of Pod Security violations: lists of names, and which part of a pod breaks a rule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec, all_containers


class PodSecurityViolation(NamedTuple):
    """One rule that a pod breaks."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Check = Callable[[Mapping[str, str], PodSpec], PodSecurityViolation | None]
"""Checks the annotations and the spec of a pod."""


def containers_of(spec: PodSpec) -> Iterator[Container]:
    """Yield the containers of a pod, those of its start first."""
    return (container for _, container in all_containers(spec))


def quoted_list(names: Sequence[str]) -> str:
    """Return names in quotes, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)


def number(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


def of_containers(names: Sequence[str]) -> str:
    """Return `container "a"`, or `containers "a", "b"`."""
    return f"{number(len(names), 'container', 'containers')} {quoted_list(names)}"


def setters(of_pod: bool, names: Sequence[str]) -> str:
    """Return which parts of a pod set a forbidden value; empty if none does."""
    parts = ["pod"] if of_pod else []
    if names:
        parts.append(of_containers(names))
    return " and ".join(parts)
