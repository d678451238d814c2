"""Why a pod does not run: one row for each cause."""

from typing import Any

import pytest

from kedge.cli.doctor.pod_diagnosis import PodEvidence, diagnose, diagnose_creation

READY_NODE = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
LOST_NODE = {
    "status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped"}]}
}
LIMITED = {"name": "main", "image": "img", "resources": {"limits": {"memory": "64Mi"}}}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def event(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message}


def evidence(
    *statuses: dict[str, Any],
    events: tuple[dict[str, Any], ...] = (),
    node: dict[str, Any] | None = READY_NODE,
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> PodEvidence:
    """A pod on node n with one container; `statuses` are those of its containers."""
    pod = {
        "metadata": {"name": "web", "namespace": "shop", **(metadata or {})},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "img"}], **(spec or {})},
        "status": {"phase": "Pending", "containerStatuses": statuses, **status},
    }
    return PodEvidence(pod, events, node)


def scheduled(message: str) -> list[dict[str, Any]]:
    return [{"type": "PodScheduled", "status": "False", "message": message}]


RUNNING = {"name": "main", "ready": True, "state": {"running": {}}}
UNREADY = {"name": "main", "ready": False, "state": {"running": {}}}
LOOP = waiting("CrashLoopBackOff", restartCount=3)

CASES = {
    "unschedulable": (
        evidence(
            spec={"nodeName": ""}, conditions=scheduled("0/1 nodes are available: Insufficient cpu")
        ),
        "unschedulable",
        "no node can take the pod",
        "kedge why web -n shop",
    ),
    "another scheduler": (
        evidence(spec={"nodeName": "", "schedulerName": "mine"}),
        "unschedulable",
        'no scheduler has looked at the pod: it asks for "mine"',
        'run "mine"',
    ),
    "scheduling gate": (
        evidence(spec={"nodeName": "", "schedulingGates": [{"name": "a/b"}]}),
        "gated",
        "the pod waits for its scheduling gates: a/b",
        "the controller that set the gates",
    ),
    "claim is missing": (
        evidence(
            spec={"nodeName": ""}, conditions=scheduled('persistentvolumeclaim "data" not found')
        ),
        "volume",
        "a volume of the pod is not available",
        "kedge describe pvc data",
    ),
    "image": (
        evidence(
            waiting("ImagePullBackOff", "Back-off pulling"),
            events=(event("Failed", 'Failed to pull image "img": no such host'),),
        ),
        "image",
        'the image "img" of container "main" cannot be had: ImagePullBackOff',
        "kedge up --image-map 'img=host'",
    ),
    "crash loop": (
        evidence(waiting("CrashLoopBackOff", restartCount=3, lastState=ended(2))),
        "crash-loop",
        'container "main" ends again and again with exit code 2',
        "kedge logs web -n shop -c main --previous",
    ),
    "command not found": (
        evidence(waiting("CrashLoopBackOff", restartCount=3, lastState=ended(127))),
        "crash-loop",
        'container "main" ends again and again with exit code 127',
        "127 means that the command was not found",
    ),
    "a server that ends": (
        evidence(waiting("CrashLoopBackOff", restartCount=1, lastState=ended(0, "Completed"))),
        "crash-loop",
        'container "main" ends again and again with exit code 0',
        "a server has to stay",
    ),
    "crash without restart": (
        evidence(
            {"name": "main", "state": ended(1)}, phase="Failed", spec={"restartPolicy": "Never"}
        ),
        "crash",
        'container "main" ends with exit code 1',
        "kedge logs web -n shop -c main",
    ),
    "liveness probe": (
        evidence(
            waiting("CrashLoopBackOff", restartCount=2, lastState=ended(143)),
            events=(
                event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
                event("Killing", "Container main failed liveness probe, will be restarted"),
            ),
        ),
        "probe",
        'container "main" is restarted because its liveness probe fails',
        "correct the probe",
    ),
    "readiness probe": (
        evidence(
            UNREADY, phase="Running", events=(event("Unhealthy", "Readiness probe failed: x"),)
        ),
        "probe",
        'container "main" runs, but its readiness probe does not succeed',
        "kedge logs web -n shop -c main",
    ),
    "readiness gate": (
        evidence(RUNNING, phase="Running", spec={"readinessGates": [{"conditionType": "a/b"}]}),
        "gate",
        "the pod runs, but its readiness gate a/b is not True",
        "the controller of that gate",
    ),
    "config map of a variable": (
        evidence(waiting("CreateContainerConfigError", 'configmap "settings" not found')),
        "config",
        'the configmap "settings" does not exist in namespace shop',
        "kedge get configmaps -n shop",
    ),
    "key of a secret": (
        evidence(
            waiting("CreateContainerConfigError", "couldn't find key password in Secret shop/db")
        ),
        "config",
        "a ConfigMap or Secret lacks a key that the pod uses",
        "add the key",
    ),
    "secret of a volume": (
        evidence(
            waiting("ContainerCreating"),
            events=(event("FailedMount", 'MountVolume.SetUp failed: secret "tls" not found'),),
        ),
        "config",
        'the secret "tls" does not exist in namespace shop',
        "kedge get secrets -n shop",
    ),
    "volume": (
        evidence(
            waiting("ContainerCreating"),
            events=(event("FailedMount", "MountVolume.SetUp failed: no such device"),),
        ),
        "volume",
        "a volume of the pod is not available",
        "kedge get pvc,pv",
    ),
    "out of memory": (
        evidence(
            waiting("CrashLoopBackOff", restartCount=4, lastState=ended(137, "OOMKilled")),
            spec={"containers": [LIMITED]},
        ),
        "memory",
        'container "main" was killed because it used more than its memory limit of 64Mi',
        "kedge top web --containers",
    ),
    "admission on the node": (
        evidence(
            phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"
        ),
        "node-admission",
        "the node refused the pod: OutOfcpu",
        "lower the requests",
    ),
    "evicted": (
        evidence(phase="Failed", reason="Evicted", message="The node was low on memory"),
        "evicted",
        "the node evicted the pod because it lacked resources",
        "kedge describe node",
    ),
    "deadline": (
        evidence(phase="Failed", reason="DeadlineExceeded"),
        "deadline",
        "the pod has run for longer than its activeDeadlineSeconds",
        "raise spec.activeDeadlineSeconds",
    ),
    "init container fails": (
        evidence(
            waiting("PodInitializing"),
            spec={"initContainers": [{"name": "prepare", "image": "img"}]},
            initContainerStatuses=[
                {
                    "name": "prepare",
                    "restartCount": 1,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": ended(1),
                }
            ],
        ),
        "init",
        'init container "prepare" ends again and again with exit code 1',
        "kedge logs web -n shop -c prepare --previous",
    ),
    "init container runs": (
        evidence(
            waiting("PodInitializing"),
            spec={"initContainers": [{"name": "prepare", "image": "img"}]},
            initContainerStatuses=[{"name": "prepare", "state": {"running": {}}}],
        ),
        "init",
        'init container "prepare" runs, and the other containers wait for its end',
        "kedge logs web -n shop -c prepare -f",
    ),
    "a sidecar that has started is no obstacle": (
        evidence(
            LOOP | {"lastState": ended(3)},
            spec={"initContainers": [{"name": "proxy", "image": "p", "restartPolicy": "Always"}]},
            initContainerStatuses=[{"name": "proxy", "started": True, "state": {"running": {}}}],
        ),
        "crash-loop",
        'container "main" ends again and again with exit code 3',
        "kedge logs",
    ),
    "finalizer": (
        evidence(metadata={"deletionTimestamp": "t", "finalizers": ["a/b"]}),
        "terminating",
        "the pod is deleted, and waits for its finalizer a/b",
        "let the controller of that finalizer finish",
    ),
    "deleted on a lost node": (
        evidence(metadata={"deletionTimestamp": "t"}, node=LOST_NODE),
        "terminating",
        "the pod is deleted, but its node does not answer and so cannot confirm it",
        "kedge delete pod web -n shop --force",
    ),
    "deleted": (
        evidence(RUNNING, metadata={"deletionTimestamp": "t"}),
        "terminating",
        "the pod is deleted; its containers have to end by t",
        "kedge delete pod web -n shop --force",
    ),
    "node is not ready": (
        evidence(RUNNING, phase="Running", node=LOST_NODE),
        "node",
        'node "n" is not ready',
        "kedge up",
    ),
    "node is gone": (evidence(node=None), "node", 'node "n" does not exist', "kedge status"),
    "sandbox": (
        evidence(events=(event("FailedCreatePodSandBox", "no address is left"),)),
        "sandbox",
        "the node cannot make the sandbox of the pod",
        "kedge doctor",
    ),
    "start": (
        evidence(
            waiting(
                "CrashLoopBackOff", restartCount=1, lastState=ended(128, "StartError", message="x")
            )
        ),
        "start",
        'container "main" cannot be started',
        "check command",
    ),
    "starting": (
        evidence(waiting("ContainerCreating"), events=(event("Pulling", "Pulling image"),)),
        "starting",
        "the pod is starting, and nothing has gone wrong yet",
        "kedge get pod web -n shop -w",
    ),
    "succeeded": (
        evidence({"name": "main", "state": ended(0, "Completed")}, phase="Succeeded"),
        "succeeded",
        "all containers have ended with exit code 0",
        "",
    ),
    "running after a crash": (
        evidence(
            RUNNING | {"restartCount": 2, "lastState": ended(137, "OOMKilled")},
            phase="Running",
            conditions=[{"type": "Ready", "status": "True"}],
        ),
        "running",
        "nothing: the pod runs and is ready",
        "kedge why web -n shop --slow",
    ),
}


@pytest.mark.parametrize(("found", "kind", "cause", "remedy"), CASES.values(), ids=CASES)
def test_each_cause_is_found(found: PodEvidence, kind: str, cause: str, remedy: str) -> None:
    told = diagnose(found)
    assert (told.kind, told.cause) == (kind, cause)
    assert remedy in "\n".join(told.remedies)
    assert told.is_healthy == (kind in ("running", "succeeded"))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods "web" is forbidden: exceeded quota: small, requested: pods=1', "quota"),
        ("maximum cpu usage per Container is 2, but limit is 3", "limits"),
        ('pods "web" is forbidden: violates PodSecurity "restricted"', "refused"),
        ("", "none"),
    ],
)
def test_a_workload_without_pods(message: str, kind: str) -> None:
    told = diagnose_creation("deploy/web", [message] if message else [])
    assert told.kind == kind
    assert "deploy/web" in told.cause
    assert told.evidence == ((message,) if message else ())


def test_the_evidence_is_the_latest_event() -> None:
    events = tuple(event("FailedMount", f"try {number}") for number in (1, 2))
    assert diagnose(evidence(waiting("ContainerCreating"), events=events)).evidence == ("try 2",)
