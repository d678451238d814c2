"""metrics/v1alpha1 on the node's own port."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.metrics.window_file import WindowFile
from kedge.node.server import usage
from kedge.node.stats.meters import UsageSources
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.sampler import Sampler
from kedge.node.stats.window_pages import WindowPages
from kedge.testing.clock import FakeClock
from kedge.testing.measured import NODE, MeasuredMachine, group
from kedge.web.message import HttpRequest

START = 1_893_456_000
MB = 1 << 20
ROOT = "/apis/metrics/v1alpha1"


@pytest.fixture
async def pages(tmp_path: Path, machine: MeasuredMachine) -> WindowPages:
    """A pod with two containers has run for twenty seconds, idle and then busy."""
    clock = FakeClock()
    machine.use("/", cpu=0, memory=0)
    sources = UsageSources(machine.cgroups, NODE, list)
    store = WindowFile(tmp_path / "usage", "boot")
    sampler = Sampler(store, machine, sources, clock, runtime=lambda: 0)
    machine.run("web", "main", "side", began=START)
    used = 0.0
    for second in range(1, 21):
        await clock.advance(1)
        used += 0.1 if second <= 12 else 0.9
        machine.use("/", cpu=used + 50, memory=0)
        for path in (NODE, group("uid-web"), group("uid-web", "main"), group("uid-web", "side")):
            machine.use(path, cpu=used, memory=MB)
        sampler.take(START + second)
    return WindowPages(sampler, "n1", lambda: "node-uid")


def read(pages: WindowPages, path: str, query: str = "") -> Any:
    found = pages.answer(HttpRequest("GET", ROOT + path, query))
    assert found is not None
    assert isinstance(found.body, bytes)
    return json.loads(found.body)


async def test_a_node_serves_itself_and_its_pods(pages: WindowPages) -> None:
    assert read(pages, "/nodes")["items"][0]["metadata"]["name"] == "n1"
    assert read(pages, "/nodes/n1")["machine"]["10s"]["mean"]["cpu"]
    (pod,) = read(pages, "/pods")["items"]
    assert pod == read(pages, "/namespaces/shop/pods/web")
    assert [each["metadata"]["name"] for each in pod["containers"]] == ["main", "side"]
    assert read(pages, "/namespaces/other/pods")["items"] == []
    assert "50th" not in pod["total"]["10s"]


async def test_percentiles_come_on_request(pages: WindowPages) -> None:
    pod = read(pages, "/namespaces/shop/pods/web", "percentiles=10,90")
    minute = pod["containers"][0]["metrics"]["1m"]
    assert {key for key in minute if key.endswith("th")} == {"10th", "90th", "95th"}
    cores = [float(Quantity.parse(minute[key]["cpu"]).nanos / 1e9) for key in ("10th", "90th")]
    assert cores == pytest.approx([0.1, 0.9], rel=1e-4)
    assert pod["total"]["1m"]["90th"]["memory"] == minute["95th"]["memory"]
    node = read(pages, "/nodes/n1", "percentiles=50")
    assert node["machine"]["1d"]["50th"]["cpu"]
    assert all("50th" in each["metrics"]["1m"] for each in node["systemContainers"])


async def test_reading_does_not_count_as_publishing(pages: WindowPages) -> None:
    read(pages, "/pods")
    assert pages._sampler.has_news()


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("/nodes/n2", "", 404),
        ("/namespaces/shop/pods/none", "", 404),
        ("/pods", "percentiles=zero", 400),
    ],
)
async def test_wrong_names_and_numbers_are_refused(
    pages: WindowPages, path: str, query: str, code: int
) -> None:
    with pytest.raises(StatusError) as caught:
        pages.answer(HttpRequest("GET", ROOT + path, query))
    assert caught.value.code == code


@pytest.mark.parametrize("path", ["", "/", "/services", "/pods/web", "/namespaces/shop"])
async def test_other_paths_do_not_exist(pages: WindowPages, path: str) -> None:
    assert pages.answer(HttpRequest("GET", ROOT + path)) is None


async def test_only_paths_below_the_root_are_served(pages: WindowPages) -> None:
    def served(path: str) -> bool:
        found = usage.answer(HttpRequest("GET", path), cast(NodeReadings, None), pages)
        return found is not None

    assert served(f"{ROOT}/pods")
    assert not served(f"{ROOT}x/pods")


async def test_the_course_of_a_pod_comes_on_request(pages: WindowPages) -> None:
    pod = read(pages, "/namespaces/shop/pods/web", "history=true")
    own = pod["containers"][0]["history"]
    assert {window: own[window]["step"] for window in own} == {
        "1m": "1s",
        "1h": "10s",
        "1d": "300s",
    }
    seconds = own["1m"]["cpu"]["mean"]
    assert len(seconds) == 60
    assert seconds[-20:] == pytest.approx([0.1] * 12 + [0.9] * 8, rel=1e-3)
    assert seconds[:-20] == [None] * 40
    assert own["1h"]["cpu"]["mean"][-2:] == pytest.approx([0.1, 0.74], rel=1e-3)
    assert own["1h"]["cpu"]["max"][-1] == pytest.approx(0.9, rel=1e-3)
    assert len(own["1h"]["memory"]["mean"]) == 360
    day = own["1d"]["cpu"]
    assert [len(day[each]) for each in ("mean", "max", "95th")] == [288] * 3
    assert day["mean"][-1] == pytest.approx(0.42, rel=1e-3)
    assert day["95th"][-1] == pytest.approx(0.74, rel=0.01)
    assert pod["history"]["1h"]["memory"]["mean"][-1] == MB
    assert "history" in read(pages, "/nodes/n1", "history=true")
    assert "history" not in read(pages, "/namespaces/shop/pods/web")["containers"][0]
