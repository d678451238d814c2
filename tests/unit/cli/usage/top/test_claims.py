"""`kedge top pvc`."""

import json
from array import array
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top.view import show
from kedge.metrics.detail_windows import NONE_KNOWN, SIZE, DetailWindows
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.windows import TICK_SECONDS
from kedge.testing.local_server import LocalServer

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
async def claims(server: LocalServer, usage: Any) -> None:
    """A pod on n1 with a small and a large claim."""
    tick = int(server.clock.now().timestamp()) // TICK_SECONDS
    pods, rows, volumes = [], [b""], []
    for number, (name, used) in enumerate((("small", 2_000_000), ("large", 30_000_000)), 1):
        await _claim(server, name)
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": name}})
        pods.append(FramePod("default", name, f"uid-{name}", 1, 0, number, []))
        rows.append(_row(tick, used))
    spec = {"nodeName": "n1", "volumes": volumes, "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": "web"}, "spec": spec}
    made = await server.post("/api/v1/namespaces/default/pods", body)
    inside = [FrameContainer("c", 1, 0)]
    pods.append(FramePod("default", "web", made["metadata"]["uid"], 1, 0, 0, inside))
    values = array("f", [-1.0] * (WIDTH * len(rows)))
    frame = Frame("n1", "u", tick, 10, 1, [], pods, values, rows)
    server.app.api.metrics.take("n1", frame)


async def _claim(server: LocalServer, name: str) -> None:
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    resources = {"requests": {"storage": "40M"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "volumeName": f"pv-{name}"}
    await server.post(path, {"metadata": {"name": name}, "spec": spec})
    status = {"status": {"phase": "Bound", "capacity": {"storage": "40M"}}}
    await server.merge(f"{path}/{name}/status", status)


def _row(tick: int, used: float) -> bytes:
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    windows.put(tick, [used, 12.0, *NONE_KNOWN[2:]])
    return windows.row()


def options(**look: Any) -> TopOptions:
    return TopOptions(what="pvc", grouped=True, **look)


async def test_claims_are_shown_with_their_capacity(there: ApiSession, capsys: Captured) -> None:
    assert await show(there, options(), live=False, as_json=False) == 0
    heading, *rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[each.strip() for each in row if each] for row in rows]
    assert [each.strip() for each in heading if each] == [
        *("CLAIM", "USED", "CAPACITY", "USED%", "INODES"),
    ]
    assert [[row[0], row[2], row[3], row[4]] for row in cells] == [
        ["large", "40 MB", "75%", "12"],
        ["small", "40 MB", "5%", "12"],
    ]


async def test_wide_names_the_volume(there: ApiSession, capsys: Captured) -> None:
    wide = options(wide=True, everywhere=True, sort_by="name")
    assert await show(there, wide, live=False, as_json=False) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[-2:] == ["VOLUME", "CLASS"]
    assert [row.split()[-2] for row in rows] == ["pv-large", "pv-small"]


async def test_json_has_the_usage_of_the_window(there: ApiSession, capsys: Captured) -> None:
    day = options(window="1d", statistic="max")
    assert await show(there, day, live=False, as_json=True) == 0
    first = json.loads(capsys.readouterr().out)["items"][0]
    assert first["name"] == "large"
    assert first["capacity"] == "40M"
    assert first["usage"]["inodes"] == "12"
