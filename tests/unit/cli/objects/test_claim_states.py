"""The claims of a pod, read from a server in this process."""

from typing import Any

import pytest

from kedge.cli.descriptions.claim_state import ClaimState
from kedge.cli.objects.claim_states import claim_states
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.describe.show import DescribeOptions
from kedge.cli.objects.describe.show import show as describe
from kedge.testing.local_server import LocalServer

NAMESPACE = "/api/v1/namespaces/default"


def pod(claim: str) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


async def make_claim(server: LocalServer) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
    }
    path = f"{NAMESPACE}/persistentvolumeclaims"
    made = await server.post(path, {"metadata": {"name": "data"}, "spec": spec})
    for number, uid in enumerate((made["metadata"]["uid"], "another")):
        about = {
            "kind": "PersistentVolumeClaim",
            "name": "data",
            "namespace": "default",
            "uid": uid,
        }
        event = {
            "metadata": {"name": f"e{number}"},
            "involvedObject": about,
            "reason": "FailedBinding",
            "message": uid,
        }
        await server.post(f"{NAMESPACE}/events", event)


async def test_a_claim_is_told_with_its_own_events(there: ApiSession, server: LocalServer) -> None:
    await make_claim(server)
    [state] = (await claim_states(there, pod("data"))).values()
    assert (state.claim, state.phase, state.volume) == ("data", "Pending", "<none>")
    assert state.waits_for.startswith("FailedBinding: ")
    assert "another" not in state.waits_for


async def test_a_missing_claim_is_named(there: ApiSession) -> None:
    assert await claim_states(there, pod("none")) == {
        "v": ClaimState("none", "Missing", waits_for="the claim does not exist")
    }


async def test_pods_and_claims_are_described_with_each_other(
    there: ApiSession, server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    await make_claim(server)
    await server.post(f"{NAMESPACE}/pods", pod("data"))
    now = server.clock.now()
    assert await describe(there, DescribeOptions(["pod", "web"]), now) == 0
    assert "Waits For:     FailedBinding: " in capsys.readouterr().out
    assert await describe(there, DescribeOptions(["pvc", "data"]), now) == 0
    assert "Used By:       web on <none>" in capsys.readouterr().out
