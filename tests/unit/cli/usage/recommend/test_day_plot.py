"""Plots of a day with the proposal."""

from typing import Any

import pytest

from kedge.api.metrics_v1alpha1 import pod
from kedge.cli.output.plot import Rule
from kedge.cli.usage.recommend import day_plot
from kedge.machinery.quantity import Quantity

SIZE = (Quantity.parse("250m"), Quantity.parse("600m"))
COURSE = {
    "starttime": "2030-01-01T10:00:00Z",
    "step": "300s",
    "cpu": {"max": [None, None, 0.1, 0.5, 0.2, 0.1]},
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_course_begins_where_it_was_measured_and_the_proposal_is_drawn_in() -> None:
    now = [Rule(0.5, "request 500m"), Rule(8.0, "limit 8")]
    lines = list(day_plot.drawn("cpu of main in web-1", COURSE, "cpu", now, SIZE))
    assert lines[0] == ("cpu of main in web-1: the maximum of each 5m; now: request 500m, limit 8")
    assert lines[1].startswith("600m ")
    assert lines[1].endswith(" proposed limit 600m")
    assert [line.split()[-3:] for line in lines if "proposed request" in line] == [
        ["proposed", "request", "250m"]
    ]
    assert any(line.endswith(" request 500m") for line in lines[1:])
    # A limit far above would make the course flat.
    assert not any(line.endswith("limit 8") for line in lines[1:])
    assert lines[-1].split() == ["10:10:00", "10:30:00", "UTC"]


def test_a_course_that_is_not_known_any_more_is_said_to_be_so() -> None:
    for course in ({}, COURSE | {"cpu": {"max": [None]}}):
        (line,) = day_plot.drawn("cpu of main in web-1", course, "cpu", [], SIZE)
        assert line == "cpu of main in web-1: its node does not know the course any more"


def measured(name: str, cpu: str) -> Any:
    window = {"endtime": "2030-01-02T00:00:00Z", "mean": {}, "95th": {}, "max": {"cpu": cpu}}
    containers = [{"metadata": {"name": "main"}, "metrics": {"1d": window}}]
    return pod.RESOURCE.from_document({"metadata": {"name": name}, "containers": containers})


def test_the_pod_that_used_most_is_drawn() -> None:
    pods = [measured("a", "100m"), measured("b", "300m"), measured("c", "200m")]
    assert day_plot.busiest(pods, "main", "cpu") == "b"


def test_the_course_of_a_container_is_found() -> None:
    document = {"containers": [{"metadata": {"name": "main"}, "history": {"1d": COURSE}}]}
    assert day_plot.course_of(document, "main", "1d") == COURSE
    assert day_plot.course_of(document, "side", "1d") == {}
    assert day_plot.course_of({}, "main", "1d") == {}
