"""What a claim of a pod waits for."""

from typing import Any

from kedge.cli.descriptions.claim_state import (
    ClaimState,
    claim_lines,
    claim_names,
    claim_state,
    nodes_of,
)

Json = dict[str, Any]


def claim(volume: str = "", **status: Any) -> Json:
    return {
        "metadata": {"name": "data"},
        "spec": {"volumeName": volume} if volume else {},
        "status": {"phase": "Bound" if volume else "Pending", **status},
    }


def event(reason: str, message: str, at: str = "2030-01-01T00:00:00Z") -> Json:
    return {"reason": reason, "message": message, "lastTimestamp": at}


def volume_on(*nodes: str) -> Json:
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = [{"matchExpressions": [rule]}]
    return {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}


def test_a_pending_claim_waits_for_what_its_latest_event_says() -> None:
    events = [
        event("ProvisioningFailed", "no space", "2030-01-01T00:00:05Z"),
        event("WaitForFirstConsumer", "waiting"),
    ]
    assert claim_state(claim(), None, events) == ClaimState(
        "data", "Pending", waits_for="ProvisioningFailed: no space"
    )
    assert claim_state(claim(), None, ()).waits_for == "a volume"


def test_a_bound_claim_waits_for_its_mount() -> None:
    failures = [
        event("FailedMount", 'MountVolume.SetUp failed for volume "pv-1" : no'),
        event("FailedMount", 'MountVolume.SetUp failed for volume "other" : no'),
        event("Pulled", 'has "pv-1"'),
    ]
    state = claim_state(claim("pv-1"), volume_on("node-1"), (), failures, "v")
    assert state == ClaimState(
        "data",
        "Bound",
        "pv-1",
        "node-1",
        'FailedMount: MountVolume.SetUp failed for volume "pv-1" : no',
    )
    assert claim_state(claim("pv-1"), None, (), failures[1:], "v").waits_for == ""


def test_a_claim_that_cannot_grow_says_why() -> None:
    conditions = [
        {"type": "FileSystemResizePending", "message": "later"},
        {"type": "NodeResizeError", "message": "no space"},
    ]
    state = claim_state(claim("pv-1", conditions=conditions), None, ())
    assert state.waits_for == "NodeResizeError: no space"


def test_nodes_are_named_by_the_volume() -> None:
    assert nodes_of(volume_on("a", "b")) == "a,b"
    assert nodes_of({"spec": {}}) == "<any>"
    rule = {"key": "zone", "operator": "In", "values": ["x"]}
    terms = [{"matchExpressions": [rule]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    assert nodes_of({"spec": {"nodeAffinity": affinity}}) == "zone In x"


def test_claims_are_named_by_volumes_or_made_for_the_pod() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {}},
        {"name": "c", "emptyDir": {}},
    ]
    pod = {"metadata": {"name": "web"}, "spec": {"volumes": volumes}}
    assert list(claim_names(pod)) == [("a", "data"), ("b", "web-b")]


def test_the_description_of_a_pod_has_a_line_for_each_fact() -> None:
    state = ClaimState("data", "Bound", "pv-1", "node-1", "x")
    assert list(claim_lines(state)) == [
        "Claim Status:\tBound",
        "Volume:\tpv-1",
        "Nodes:\tnode-1",
        "Waits For:\tx",
    ]
