"""`kedge top deploy`, `kedge top namespaces` and the others."""

import json
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top.groups import KINDS
from kedge.cli.usage.top.view import show
from kedge.testing.local_server import LocalServer

MAIN = {"containers": [{"name": "main", "image": "host"}]}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
async def pods(server: LocalServer, usage: Any) -> None:
    await usage.pod("default/web", MAIN)
    await usage.pod("default/api", MAIN)
    await usage.pod("kube-system/dns", MAIN)
    usage.report(0.25)


async def printed(there: ApiSession, capsys: Captured, **look: Any) -> list[list[str]]:
    options = TopOptions(grouped=True, **look)
    assert await show(there, options, live=False, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell] for line in lines]


async def test_namespaces_are_shown_with_all_their_pods(
    there: ApiSession, capsys: Captured
) -> None:
    heading, *rows = await printed(there, capsys, what="namespaces")
    assert heading == ["NAMESPACE", "PODS", "CPU", "MEM", "CPU/POD", "MEM/POD"]
    assert rows == [
        ["default", "2", "0.50 cores", "134 MB", "0.25 cores", "67 MB"],
        ["kube-system", "1", "0.25 cores", "67 MB", "0.25 cores", "67 MB"],
    ]


async def test_wide_shows_the_pod_that_uses_most(there: ApiSession, capsys: Captured) -> None:
    heading, *rows = await printed(there, capsys, what="qos", wide=True, everywhere=True)
    assert "CPU MOST" in heading
    assert [row[0] for row in rows] == ["default", "kube-system"]
    assert "67 MB" in rows[0]
    assert "THROTTLED" in heading


async def test_json_has_the_bound_from_below(there: ApiSession, capsys: Captured) -> None:
    look = TopOptions(what="namespaces", grouped=True, statistic="95th", sort_by="name")
    assert await show(there, look, live=False, as_json=True) == 0
    first = json.loads(capsys.readouterr().out)["items"][0]
    assert first["name"] == "default"
    assert first["usage"] == {"cpu": "500m", "memory": "128Mi"}
    assert first["atLeast"] == {"cpu": "250m", "memory": "64Mi"}


async def test_a_kind_without_pods_says_so(there: ApiSession, capsys: Captured) -> None:
    assert (
        await show(there, TopOptions(what="deploy", grouped=True), live=False, as_json=False) == 0
    )
    assert "Nothing has been reported lately in default namespace." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("deploy", "deployments"),
        ("ns", "namespaceusages"),
        ("job", "jobs"),
        ("sts", "statefulsets"),
    ],
)
def test_kinds_have_the_short_names_of_kubectl(name: str, plural: str) -> None:
    assert KINDS[name].plural == plural
