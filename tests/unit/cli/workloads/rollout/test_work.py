"""Rollouts and scaling, in front of a server in this process."""

from argparse import Namespace
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.workloads.rollout.work import RESTARTED_AT, rollout
from kedge.cli.workloads.scale import scale
from kedge.testing.local_server import LocalServer

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
Captured = pytest.CaptureFixture[str]


def template(image: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


@pytest.fixture(autouse=True)
async def web(server: LocalServer) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template("new")}
    made = await server.post(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    for number, image in ((1, "old"), (2, "new")):
        metadata = {
            "name": f"web-{number}",
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
            "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}],
        }
        await server.post(
            SETS, {"metadata": metadata, "spec": {**spec, "template": template(image)}}
        )
    result: dict[str, Any] = made
    return result


def flags(action: str, *words: str, **others: Any) -> Namespace:
    given = {"timeout": 5.0, "watch": "false", "revision": 0, "to_revision": 0, "dry_run": "none"}
    return Namespace(action=action, words=words or ("deploy/web",), **{**given, **others})


async def test_undo_restores_the_template_before(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    await rollout(there, flags("undo"))
    assert capsys.readouterr().out == "deployment.apps/web rolled back\n"
    spec = (await server.get(f"{DEPLOYMENTS}/web"))["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "old"
    await rollout(there, flags("undo", to_revision=1))
    assert "skipped rollback (current template already matches revision 1)" in (
        capsys.readouterr().out
    )
    with pytest.raises(Failure, match="unable to find specified revision 9"):
        await rollout(there, flags("undo", to_revision=9))


async def test_history_lists_revisions_and_shows_one(there: ApiSession, capsys: Captured) -> None:
    await rollout(there, flags("history"))
    assert capsys.readouterr().out == (
        "deployment.apps/web \nREVISION   CHANGE-CAUSE\n1          <none>\n2          <none>\n\n"
    )
    await rollout(there, flags("history", revision=1))
    assert "image: old" in capsys.readouterr().out


async def test_a_restart_is_an_annotation_of_the_template(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    await rollout(there, flags("restart"))
    assert capsys.readouterr().out == "deployment.apps/web restarted\n"
    changed = (await server.get(f"{DEPLOYMENTS}/web"))["spec"]["template"]["metadata"]
    assert changed["annotations"][RESTARTED_AT].endswith("Z")


async def test_a_deployment_is_paused_once(there: ApiSession, capsys: Captured) -> None:
    await rollout(there, flags("pause"))
    with pytest.raises(Failure, match="already paused"):
        await rollout(there, flags("pause"))
    with pytest.raises(Failure, match="resume it first"):
        await rollout(there, flags("undo"))
    await rollout(there, flags("resume"))
    assert capsys.readouterr().out == "deployment.apps/web paused\ndeployment.apps/web resumed\n"


async def test_the_status_is_told_once_without_watch(there: ApiSession, capsys: Captured) -> None:
    await rollout(there, flags("status"))
    assert "Waiting for deployment spec update to be observed..." in capsys.readouterr().out


async def test_only_workloads_with_revisions_have_rollouts(there: ApiSession) -> None:
    with pytest.raises(Failure, match="a rollout is of a Deployment"):
        await rollout(there, flags("status", "rs/web-1"))
    with pytest.raises(Failure, match="name one of the deployments"):
        await rollout(there, flags("status", "deployments"))


async def test_scale_writes_the_number_if_it_was_the_expected_one(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    def asked(replicas: int, current: int | None = None) -> Namespace:
        words = ["deploy/web"]
        return Namespace(words=words, replicas=replicas, current_replicas=current, dry_run="none")

    await scale(there, asked(3))
    await scale(there, asked(4, current=3))
    assert capsys.readouterr().out == "deployment.apps/web scaled\n" * 2
    assert (await server.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 4
    with pytest.raises(Failure, match="Expected replicas to be 3, was 4"):
        await scale(there, asked(5, current=3))
