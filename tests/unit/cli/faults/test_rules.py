"""`kedge faults` against a server in this process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.api.testing.fault_rule import FaultRule
from kedge.cli.failure import Failure
from kedge.cli.faults import rules
from kedge.cli.main import parser
from kedge.cli.objects.connection import ApiSession
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.testing.local_server import LocalServer

Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(is_for_tests=True) as server:
        yield server


def test_flags_make_a_rule() -> None:
    line = "faults add --verbs get,list --resource pods/log -n shop --name web --times 2"
    flags = parser().parse_args([*line.split(), "--service-account=shop/op", "--latency=500ms"])
    assert rules.rule_of(flags) == FaultRule(
        verbs=("get", "list"),
        resource="pods/log",
        namespace="shop",
        name="web",
        service_account="shop/op",
        latency=0.5,
        times=2,
    )


async def test_add_list_and_remove(there: ApiSession, capsys: Captured) -> None:
    rule = FaultRule(verbs=("update",), resource="pods/status", user_agent="op", code=409, times=2)
    assert await rules.adding(rule, None)(there) == 0
    assert await rules.adding(FaultRule(namespace="a", drop=True, stage="after"), None)(there) == 0
    assert capsys.readouterr().out == "fault-1 added\nfault-2 added\n"
    await rules.listing(None)(there)
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == list(rules.HEADS)
    cells = [" ".join(row.split()) for row in rows]
    assert cells == [
        "fault-1 update pods/status <any> op 409 2 0",
        "fault-2 <any> <any> a/* <any> dropped after the work always 0",
    ]
    await rules.removing(["fault-1"], everything=False)(there)
    await rules.removing([], everything=True)(there)
    assert capsys.readouterr().out == "fault-1 removed\nfault-2 removed\n"
    await rules.listing(None)(there)
    assert capsys.readouterr().out == "There are no fault rules.\n"


async def test_rules_as_documents(there: ApiSession, capsys: Captured) -> None:
    await rules.adding(FaultRule(latency=1.5), "yaml")(there)
    assert capsys.readouterr().out == "id: fault-1\nlatency: 1.5\n"
    await rules.listing("json")(there)
    assert '"latency": 1.5' in capsys.readouterr().out


def test_remove_needs_to_know_what() -> None:
    for names, everything in (([], False), (["fault-1"], True)):
        with pytest.raises(Failure, match="or give --all"):
            rules.removing(names, everything=everything)


async def test_a_cluster_that_is_not_for_tests_is_named() -> None:
    async with LocalServer.running() as server:
        login = Login(context="here", file=Path("config"), server="https://here")
        there = ApiSession(login, server.client, Discovery(server.client))
        with pytest.raises(Failure, match="start one with 'kedge up --testing'"):
            await rules.listing(None)(there)
