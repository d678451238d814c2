"""The windows as Prometheus text."""

import re
from array import array
from typing import Any

from kedge.metrics.frame import WIDTH, Frame, FrameContainer
from kedge.metrics.frame_codec import encode
from kedge.metrics.series_memory import UNKNOWN
from kedge.testing.local_server import LocalServer

SAMPLE = re.compile(
    r'[a-z_]+\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z]+="(?:[^"\\\n]|\\[\\"n])*")*\} [0-9.e+-]+'
)
HEAD = re.compile(r"# (?:HELP|TYPE) [a-z_]+ .+")


async def text(server: LocalServer) -> str:
    return (await server.call("GET", "/metrics/usage")).text


async def test_every_family_is_described_once_and_its_samples_follow(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    await nodes.report("n1", "web")
    family = ""
    seen: list[str] = []
    for line in (await text(server)).splitlines():
        if line.startswith("# TYPE"):
            _, _, family, kind = line.split()
            assert kind == "gauge"
            seen.append(family)
        elif line.startswith("#"):
            assert HEAD.fullmatch(line)
        else:
            assert SAMPLE.fullmatch(line), line
            assert line.startswith(f"{family}{{")
    assert len(seen) == len(set(seen)) == 8


async def test_whatever_a_node_calls_its_daemons_stays_within_its_label(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    name = 'a"} 1\nfake{b="\\'
    values = array("f", [0.5, 1024.0] * WIDTH)
    daemons = [FrameContainer(name, 1, 1)]
    frame = Frame("n1", "u", nodes.tick, 10, nodes.tick * 10 - 60, daemons, [], values)
    assert (await nodes.send("n1", encode(frame))).status == 200
    lines = [line for line in (await text(server)).splitlines() if line[0] != "#"]
    assert all(SAMPLE.fullmatch(line) for line in lines)
    assert any(r'container="a\"} 1\nfake{b=\"\\"' in line for line in lines)


async def test_what_is_not_known_is_not_told(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1")
    values = array("f", [UNKNOWN] * WIDTH)
    frame = Frame("n1", "u", nodes.tick, 10, nodes.tick * 10 - 60, [], [], values)
    assert (await nodes.send("n1", encode(frame))).status == 200
    assert [line for line in (await text(server)).splitlines() if line[0] != "#"] == []
