"""Lists are valid JSON in every form and length, whether they come in one piece or in many."""

from array import array
from typing import Any

import msgspec
import pytest

from kedge.machinery.selectors import parse_fields, parse_labels
from kedge.metrics.collection import Collection, Versions
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod, in_whole_numbers
from kedge.metrics.selection import UsageSelection
from kedge.metrics.serve import lists
from kedge.metrics.serve.lists import ListForm
from kedge.metrics.usage_object import UsageObject
from kedge.testing.clock import FakeClock

ALL_WINDOWS = ListForm("Pod", "PodList", "metrics/v1alpha1", "")
ONE_WINDOW = ListForm("PodMetrics", "PodMetricsList", "metrics.k8s.io/v1beta1", "10s")
EVERYTHING = UsageSelection("", parse_labels(""), parse_fields(""))


def pods(count: int) -> Collection:
    clock = FakeClock()
    collection = Collection(Versions(clock), clock)
    values = array("f", [0.25, 1 << 20] * (WIDTH // 2))
    frame = in_whole_numbers(Frame("n1", "u", 200_000_000, 10, 1, (), (), values))
    for number in range(count):
        name = f"web-{number:04}"
        pod = UsageObject("n1", "shop", name, f"u{number}", {"app": "web"})
        pod.report_pod(
            frame, FramePod("shop", name, f"u{number}", 1, 0, 0, (FrameContainer("main", 1, 0),))
        )
        collection.put(pod)
    return collection


def decoded(body: Any) -> Any:
    return msgspec.json.decode(body if isinstance(body, bytes) else b"".join(body))


@pytest.mark.parametrize("form", [ALL_WINDOWS, ONE_WINDOW])
@pytest.mark.parametrize("count", [0, 1, 128, 129, 300])
def test_a_list_has_every_object_once_in_order(form: ListForm, count: int) -> None:
    body = lists.pieces(form, pods(count).all(), {"resourceVersion": "7"})
    assert isinstance(body, bytes) == (count <= 128)
    found = decoded(body)
    assert (found["kind"], found["apiVersion"]) == (form.list_kind, form.api_version)
    assert found["metadata"] == {"resourceVersion": "7"}
    names = [item["metadata"]["name"] for item in found["items"]]
    assert names == [f"web-{number:04}" for number in range(count)]


def test_a_single_object_names_its_kind_in_both_groups() -> None:
    (pod,) = pods(1).all()
    whole, usage = decoded(lists.one(ALL_WINDOWS, pod)), decoded(lists.one(ONE_WINDOW, pod))
    assert (whole["kind"], whole["apiVersion"]) == ("Pod", "metrics/v1alpha1")
    assert (usage["kind"], usage["window"]) == ("PodMetrics", "10s")
    assert usage["containers"] == [{"name": "main", "usage": {"cpu": "250m", "memory": "1Mi"}}]


@pytest.mark.parametrize(("most", "same"), [(3, True), (2, False)])
def test_only_short_lists_are_kept_until_the_next_change(
    most: int, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "KEPT_UP_TO", most)
    collection = pods(3)
    first = lists.whole(ALL_WINDOWS, collection, EVERYTHING, {})
    assert (lists.whole(ALL_WINDOWS, collection, EVERYTHING, {}) is first) is same
    collection.settle()
    assert lists.whole(ALL_WINDOWS, collection, EVERYTHING, {}) is not first
