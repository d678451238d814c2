"""Numbers as clients read them: canonical quantities, whatever the numbers are."""

import json
from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.quantity import Quantity
from kedge.metrics.detail_windows import SIZE, DetailWindows
from kedge.metrics.frame import WIDTH, Frame, FrameContainer
from kedge.metrics.serve import encoding
from kedge.metrics.windows import CORE, DETAILS, STATISTICS, WINDOWS

END = 1_900_000_000
DAY = 86400

round_ones = st.sampled_from([0, 1000, 10**6, 10**9, 10**12, 1024, 2048, 1 << 20, 1 << 30])
amounts = st.one_of(st.integers(0, 1 << 50), round_ones, st.integers(0, 99).map(lambda n: n * 1000))


def shown(row: list[int], since: int = 0) -> Any:
    frame = Frame("n1", "u", END // 10, 10, since, (), (), array("q", row))
    measured = [FrameContainer("main", since, 0)]
    rest = encoding.pod(frame, END // 10, measured, (0, since))
    return json.loads(encoding.beginning("Pod") + b"{}" + rest)


def numbers(document: Any) -> list[str]:
    windows = document["containers"][0]["metrics"]
    return [
        windows[window][statistic][resource]
        for window in WINDOWS
        for statistic in STATISTICS
        for resource in CORE
    ]


@given(st.lists(amounts, min_size=WIDTH, max_size=WIDTH))
def test_every_number_is_a_canonical_quantity(row: list[int]) -> None:
    for at, (text, number) in enumerate(zip(numbers(shown(row)), row, strict=True)):
        quantity = Quantity.parse(text)
        unit = "Ki" if at % 2 else "n"
        assert quantity == Quantity.parse(f"{number}{unit}")
        assert str(quantity) == text


@given(st.lists(st.one_of(st.just(-1), amounts), min_size=WIDTH, max_size=WIDTH))
def test_what_is_not_known_is_left_out(row: list[int]) -> None:
    windows = shown(row)["containers"][0]["metrics"]
    told = [
        windows[window][statistic].get(resource)
        for window in WINDOWS
        for statistic in STATISTICS
        for resource in CORE
    ]
    assert [each is None for each in told] == [number < 0 for number in row]


def test_windows_that_began_late_say_when() -> None:
    windows = shown([5] * WIDTH, since=END - 100)["containers"][0]["metrics"]
    begun = [windows[window].get("starttime") for window in WINDOWS]
    assert begun == [None, None, "2030-03-17T17:45:00Z", "2030-03-17T17:45:00Z"]
    assert {window["endtime"] for window in windows.values()} == {"2030-03-17T17:46:40Z"}


def test_usage_is_that_of_the_window_which_is_asked_for() -> None:
    row = list(range(1_000_001, 1_000_001 + WIDTH))
    frame = Frame("n1", "u", END // 10, 10, 0, (), (), array("q", row))
    rest = encoding.pod_usage(frame, END // 10, [FrameContainer('a"b', 0, 0)], "1m")
    text = encoding.USAGE_BEGINNING + b"{}" + rest
    assert json.loads(text) == {
        "metadata": {},
        "timestamp": "2030-03-17T17:46:40Z",
        "window": "1m0s",
        "containers": [{"name": 'a"b', "usage": {"cpu": "1000007n", "memory": "1000008Ki"}}],
    }


def test_a_container_that_has_ended_has_no_usage_and_is_left_out() -> None:
    """36: autoscalers pass over a pod of which one container seems to be without a value."""
    values = array("q", [1_000_000] * WIDTH + [-1] * WIDTH)
    frame = Frame("n1", "u", END // 10, 10, 0, (), (), values)
    measured = [FrameContainer("main", 0, 0), FrameContainer("setup", 0, 1)]
    rest = encoding.pod_usage(frame, END // 10, measured, "1m")
    text = encoding.USAGE_BEGINNING + b"{}" + rest
    assert [each["name"] for each in json.loads(text)["containers"]] == ["main"]


def test_details_are_beside_cpu_and_memory_as_quantities() -> None:
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    names = [each.name for each in DETAILS]
    amounts = {
        "ephemeral-storage": (10 << 20, "10Mi"),
        "ephemeral-inodes": (37, "37"),
        "disk-read": (0, None),
        "disk-write": (1_234_000.0, "1234k"),
        "network-receive": (0.25, "250m"),
        "cpu-throttled": (0.25, "250m"),
    }
    values = [float(amounts[name][0]) if name in amounts else -1.0 for name in names]
    windows.put(END // 10, values)
    for row in ([5] * WIDTH, [-1] * WIDTH):
        frame = Frame("n1", "u", END // 10, 10, 0, (), (), array("q", row), [windows.row()])
        rest = encoding.pod(frame, END // 10, [FrameContainer("main", 0, 0)], (0, 0))
        shown = json.loads(encoding.beginning("Pod") + b"{}" + rest)
        for window in shown["containers"][0]["metrics"].values():
            for statistic in STATISTICS:
                found = window[statistic]
                assert {"cpu", "memory"} <= found.keys() or row[0] < 0
                for name, (amount, text) in amounts.items():
                    assert found.get(name) == text or amount == 10 << 20
                    assert name not in found or str(Quantity.parse(found[name])) == found[name]
                stored = Quantity.parse(found["ephemeral-storage"]).value()
                assert abs(stored / (10 << 20) - 1) < 0.001


def test_other_groups_have_no_details() -> None:
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    windows.put(END // 10, [1.0] * len(DETAILS))
    frame = Frame("n1", "u", END // 10, 10, 0, (), (), array("q", [5] * WIDTH), [windows.row()])
    usage = encoding.pod_usage(frame, END // 10, [FrameContainer("main", 0, 0)], "1m")
    found = json.loads(encoding.USAGE_BEGINNING + b"{}" + usage)
    assert found["containers"][0]["usage"].keys() == {"cpu", "memory"}
    node = json.loads(encoding.USAGE_BEGINNING + b"{}" + encoding.node_usage(frame, "1m"))
    assert node["usage"].keys() == {"cpu", "memory"}
