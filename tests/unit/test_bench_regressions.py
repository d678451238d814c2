"""bench/regressions.py: which figures exceed the accepted ones."""

import runpy
from pathlib import Path

# The folder of benchmarks is not on the path of imports: its file names would hide packages.
FUNCTIONS = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "regressions.py"))
regressions, report = FUNCTIONS["regressions"], FUNCTIONS["report"]

ACCEPTED = {"create": 0.02, "get": 0.001}


def test_an_operation_may_take_fifteen_percent_more_than_accepted() -> None:
    assert regressions({"create": 0.0229, "get": 0.0005}, ACCEPTED) == []
    assert regressions({"create": 0.0231, "get": 0.00116}, ACCEPTED) == ["create", "get"]


def test_an_operation_without_an_accepted_figure_is_new() -> None:
    assert regressions({"patch": 5.0}, ACCEPTED) == []
    assert report({"patch": 5.0, "get": 2.0}, {"get": 1.0})[1:] == [
        "patch              0.0       5.0      new",
        "get                1.0       2.0    +100%",
    ]
