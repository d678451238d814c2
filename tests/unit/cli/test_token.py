"""`kedge token`: how it is told what to do, and what it does to a running cluster."""

import argparse
import asyncio
import base64
import os
import re
import shlex
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1.secret import RESOURCE
from kedge.api.model import ObjectMeta
from kedge.api.rbac_v1 import role_binding
from kedge.apiserver import pki
from kedge.cli import token
from kedge.cli.cluster import process, state
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.machinery.certificates import key_hash
from kedge.testing.server import local_client, memory_server

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    token.add_flags(parser)
    return parser.parse_args(arguments)


def test_a_token_lasts_a_day_unless_told_otherwise() -> None:
    flags = parsed("create")
    assert (flags.deed, flags.ttl, flags.usages, flags.groups) == (
        "create",
        86400,
        ("authentication", "signing"),
        (),
    )
    assert parsed("create", "--ttl", "10m").ttl == 600
    assert parsed("create", "--ttl", "0").ttl == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "--usages", "flying"), '"flying" is no usage of a token'),
        (("create", "--usages", ""), '"" is no usage of a token'),
        (("create", "--groups", "system:masters"), '"system:masters" is no group for a token'),
        (("create", "--ttl=-1s"), "not a positive duration"),
        (("delete", "S3CRET.x"), "that is no token"),
        (("delete", "abcdefg"), "that is no token"),
        (("delete",), "arguments are required"),
        ((), "arguments are required"),
    ],
)
def test_what_is_not_understood_is_said(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(*arguments)
    said = capsys.readouterr().err
    assert complaint in said
    assert "S3CRET" not in said


def test_to_delete_a_token_its_id_is_enough() -> None:
    assert parsed("delete", "abcdef", "012345.0123456789abcdef").tokens == ["abcdef", "012345"]


def test_a_list_shows_what_a_token_is_good_for() -> None:
    new = token.NewToken(90.0, ("signing", "authentication"), ("system:bootstrappers:a",), "rack 7")
    kept = token.secret_of("abcdef", "0123456789abcdef", new, NOW)
    assert token.facts(kept, NOW) == {
        "token": "abcdef.0123456789abcdef",
        "ttl": "90s",
        "expires": "2030-01-01T00:01:30Z",
        "usages": "authentication,signing",
        "description": "rack 7",
        "extraGroups": "system:bootstrappers:a",
    }


@pytest.mark.parametrize(
    ("expires", "left"),
    [
        ("", "<forever>"),
        ("2030-01-02T00:00:00Z", "24h"),
        ("2030-01-01T00:00:00Z", "<expired>"),
        ("tomorrow", "<invalid>"),
    ],
)
def test_the_time_that_is_left_is_shown_as_ages_are(expires: str, left: str) -> None:
    assert token.time_left(expires, NOW) == left


def test_without_a_cluster_there_are_no_tokens(tmp_path: Path) -> None:
    with pytest.raises(Failure, match='there is no cluster "default" here'):
        token.list_tokens(ClusterLocation(tmp_path, "default", None), None)


def test_a_cluster_that_is_down_must_be_started_first(tmp_path: Path) -> None:
    state.prepare(tmp_path / "default", "default")
    with pytest.raises(Failure, match="is not running: start it with 'kedge up'"):
        token.list_tokens(ClusterLocation(tmp_path, "default", None), None)


def binding() -> role_binding.RoleBinding:
    """With it, machines without a credential may read how to reach the cluster."""
    name = "kubeadm:bootstrap-signer-clusterinfo"
    return role_binding.RoleBinding(
        metadata=ObjectMeta(name=name, namespace="kube-public"),
        roleRef=role_binding.RoleRef(kind="Role", name=name),
    )


@pytest.fixture
async def where(tmp_path: Path) -> AsyncIterator[tuple[ClusterLocation, Any]]:
    """A running cluster."""
    directory = tmp_path / "default"
    state.prepare(directory, "default")
    process.claim(directory)
    async with memory_server(directory) as running:
        told = state.ServerRecord(
            pid=os.getpid(),
            url=running.url,
            version="0",
            started=NOW,
            store="memory",
            admission=(),
            upstream_only=False,
        )
        state.write_server(directory, told)
        client = local_client(running)
        # A controller makes it. Without one, `kedge token create` waits for it.
        await client.create(role_binding.RESOURCE, binding())
        yield ClusterLocation(tmp_path, "default", None), client


async def test_a_token_is_made_listed_and_deleted(
    where: tuple[ClusterLocation, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, client = where
    new = token.NewToken(0.0, ("authentication",), (), "rack 7")
    await asyncio.to_thread(token.list_tokens, cluster, None)
    assert "There are no tokens" in capsys.readouterr().out
    await asyncio.to_thread(token.create, cluster, new)
    made = capsys.readouterr().out.strip()
    id_ = made.partition(".")[0]
    kept = await client.get(RESOURCE, f"bootstrap-token-{id_}", "kube-system")
    assert kept.type == "bootstrap.kubernetes.io/token"
    await asyncio.to_thread(token.list_tokens, cluster, None)
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split() == [
        *("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA", "GROUPS")
    ]
    assert row.split() == [*(made, "<forever>", "<never>", "authentication", "rack", "7", "<none>")]
    await asyncio.to_thread(token.delete, cluster, [id_])
    assert capsys.readouterr().out == f'token "{id_}" deleted\n'
    with pytest.raises(Failure, match=f'there is no token "{id_}"'):
        await asyncio.to_thread(token.delete, cluster, [id_])


async def test_the_join_command_is_whole(
    where: tuple[ClusterLocation, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, _ = where
    new = token.NewToken(0.0, ("authentication",), (), "")
    await asyncio.to_thread(token.create, cluster, new, join_command=True)
    told = capsys.readouterr()
    asked = parser().parse_args(shlex.split(told.out)[1:])
    assert asked.server.startswith("https://127.0.0.1:")
    assert re.fullmatch("[a-z0-9]{6}[.][a-z0-9]{16}", asked.token)
    authority = (cluster.root / "default" / "pki" / "ca.crt").read_bytes()
    assert asked.ca_cert_hash == key_hash(authority)
    assert "no other machine can reach it" in told.err


def test_a_server_that_others_can_reach_is_no_cause_for_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = base64.b64encode(pki.ensure(tmp_path / "pki", ()).ca_pem).decode()
    info = {"server": "https://box.example.com:6443", "certificate-authority-data": authority}
    assert token.command(info, "a.b").startswith("kedge node --server https://box.example.com:6443")
    assert capsys.readouterr().err == ""
