"""Why a pod does not run: the one cause, the evidence and the remedy, decided from its objects.

The checks are an ordered list, and the first that finds something decides: what comes earlier in
the life of a pod explains what comes later.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

Fields = Mapping[str, Any]


class PodDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod does not run."""

    kind: str
    """One word for programs, such as image or crash-loop; running if nothing is wrong."""
    cause: str
    evidence: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.kind in ("running", "succeeded")


class PodEvidence(NamedTuple):
    """Everything that a diagnosis reads."""

    pod: Fields
    events: Sequence[Fields] = ()
    """The events of the pod, the latest last."""
    node: Fields | None = None
    """Its node; None if it has none, or if the Node does not exist."""

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def where(self) -> str:
        """The pod as commands take it."""
        return f"{self.name} -n {self.pod['metadata'].get('namespace', 'default')}"

    @property
    def status(self) -> Fields:
        status: Fields = self.pod.get("status") or {}
        return status

    def condition(self, name: str) -> Fields:
        conditions = self.status.get("conditions") or ()
        return next((each for each in conditions if each["type"] == name), {})

    def latest(self, *reasons: str, about: str = "") -> str:
        """Return the message of the latest event with one of these reasons and this text."""
        for event in reversed(self.events):
            message = str(event.get("message") or "")
            if event.get("reason") in reasons and about in message:
                return message
        return ""


Check = Callable[[PodEvidence], PodDiagnosis | None]

_ADMISSION: Final = re.compile(
    r"OutOf\w+|UnexpectedAdmissionError|NodeAffinity|TopologyAffinityError"
)
_MISSING: Final = re.compile(r'(configmap|secret|persistentvolumeclaim) "([^"]+)" not found', re.I)
_KEY: Final = re.compile(
    r"couldn't find key \S+ in (?:ConfigMap|Secret) \S+|references non-existent"
)
_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_START: Final = ("CreateContainerError", "RunContainerError", "CreatePodSandboxError", "StartError")


def diagnose(found: PodEvidence) -> PodDiagnosis:
    """Return the one cause."""
    for check in CHECKS:
        if diagnosis := check(found):
            return diagnosis
    return PodDiagnosis(
        kind="starting",
        cause="the pod is starting, and nothing has gone wrong yet",
        evidence=_told(found.events[-1].get("message") if found.events else ""),
        remedies=(f"kedge get pod {found.where} -w",),
    )


def _told(*texts: object) -> tuple[str, ...]:
    return tuple(str(text).strip() for text in texts if text)


def _terminating(found: PodEvidence) -> PodDiagnosis | None:
    metadata = found.pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return None
    if finalizers := metadata.get("finalizers"):
        return PodDiagnosis(
            kind="terminating",
            cause=f"the pod is deleted, and waits for its finalizer {finalizers[0]}",
            evidence=_told(f"metadata.finalizers: {', '.join(finalizers)}"),
            remedies=(
                "let the controller of that finalizer finish, or find out why it does not run",
                f"kubectl patch pod {found.where} --type=merge -p"
                ' \'{"metadata":{"finalizers":null}}\'  # skips what it was to clean up',
            ),
        )
    if found.pod["spec"].get("nodeName") and not _is_ready(found.node):
        return PodDiagnosis(
            kind="terminating",
            cause="the pod is deleted, but its node does not answer and so cannot confirm it",
            evidence=_node_facts(found),
            remedies=(
                "bring the node back: 'kedge up' restarts agents that do not run",
                f"kedge delete pod {found.where} --force  # if the node will not come back",
            ),
        )
    grace = metadata.get("deletionGracePeriodSeconds", 30)
    return PodDiagnosis(
        kind="terminating",
        cause=f"the pod is deleted; its containers have to end by {metadata['deletionTimestamp']}",
        evidence=_told(f"grace period: {grace} s", found.latest("Killing", "FailedKillPod")),
        remedies=(f"kedge delete pod {found.where} --force  # does not wait for the containers",),
    )


def _ended(found: PodEvidence) -> PodDiagnosis | None:
    phase, reason = found.status.get("phase"), str(found.status.get("reason") or "")
    message = found.status.get("message")
    if phase == "Succeeded":
        return PodDiagnosis(kind="succeeded", cause="all containers have ended with exit code 0")
    if phase != "Failed":
        return None
    if _ADMISSION.match(reason):
        return PodDiagnosis(
            kind="node-admission",
            cause=f"the node refused the pod: {reason}",
            evidence=_told(message),
            remedies=(
                "lower the requests, or free resources of the node: 'kedge top pods'",
                f"kedge delete pod {found.where}  # a controller makes another one",
            ),
        )
    if reason == "Evicted":
        return PodDiagnosis(
            kind="evicted",
            cause="the node evicted the pod because it lacked resources",
            evidence=_told(message),
            remedies=(
                "kedge describe node  # conditions and what pods use",
                "set requests and limits",
            ),
        )
    if reason == "DeadlineExceeded":
        return PodDiagnosis(
            kind="deadline",
            cause="the pod has run for longer than its activeDeadlineSeconds",
            evidence=_told(message),
            remedies=("raise spec.activeDeadlineSeconds",),
        )
    return None


def _unscheduled(found: PodEvidence) -> PodDiagnosis | None:
    spec = found.pod["spec"]
    if spec.get("nodeName"):
        return None
    condition = found.condition("PodScheduled")
    message = str(condition.get("message") or "")
    if gates := spec.get("schedulingGates"):
        names = ", ".join(each["name"] for each in gates)
        return PodDiagnosis(
            kind="gated",
            cause=f"the pod waits for its scheduling gates: {names}",
            remedies=("the controller that set the gates removes them when the pod may be placed",),
        )
    if "PersistentVolumeClaim" in message or "persistentvolumeclaim" in message:
        return _volume(found, message)
    if message:
        return PodDiagnosis(
            kind="unschedulable",
            cause="no node can take the pod",
            evidence=_told(message, found.latest("NotTriggerScaleUp")),
            remedies=(
                f"kedge why {found.where}  # which node refused it, and why",
                "lower its requests, relax its constraints, or add nodes: 'kedge up --nodes K'",
            ),
        )
    scheduler = spec.get("schedulerName", "default-scheduler")
    if scheduler != "default-scheduler":
        return PodDiagnosis(
            kind="unschedulable",
            cause=f'no scheduler has looked at the pod: it asks for "{scheduler}"',
            remedies=(f'run "{scheduler}", or leave out spec.schedulerName',),
        )
    return None


def _node_gone(found: PodEvidence) -> PodDiagnosis | None:
    name = found.pod["spec"].get("nodeName")
    if not name or _is_ready(found.node):
        return None
    cause = f'node "{name}" does not exist' if found.node is None else f'node "{name}" is not ready'
    return PodDiagnosis(
        kind="node",
        cause=cause,
        evidence=_node_facts(found),
        remedies=(
            "kedge up      # restarts agents that do not run",
            "kedge status  # why they ended",
            f"kedge delete pod {found.where} --force  # if the node will not come back",
        ),
    )


def _is_ready(node: Fields | None) -> bool:
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _node_facts(found: PodEvidence) -> tuple[str, ...]:
    if found.node is None:
        return _told(f"there is no Node {found.pod['spec'].get('nodeName')}")
    conditions = (found.node.get("status") or {}).get("conditions") or ()
    ready: Fields = next((each for each in conditions if each["type"] == "Ready"), {})
    return _told(f"Ready is {ready.get('status', 'not reported')}: {ready.get('message', '')}")


# Before the containers.


def _mounts(found: PodEvidence) -> PodDiagnosis | None:
    if found.status.get("phase") != "Pending" or not _waits_to_be_created(found):
        return None
    message = found.latest("FailedMount", "FailedAttachVolume", "FailedMapVolume")
    if not message:
        return None
    return _missing(found, message) or _volume(found, message)


def _waits_to_be_created(found: PodEvidence) -> bool:
    reasons = {_waiting(each).get("reason") for each in _statuses(found)}
    return not reasons or bool(reasons & {"ContainerCreating", "PodInitializing"})


def _volume(found: PodEvidence, message: str) -> PodDiagnosis:
    claim = re.search(r'persistentvolumeclaim "([^"]+)"', message)
    return PodDiagnosis(
        kind="volume",
        cause="a volume of the pod is not available",
        evidence=_told(message),
        remedies=(
            f"kedge describe pvc {claim[1]}" if claim else "kedge get pvc,pv",
            f"kedge describe pod {found.where}  # what each claim waits for",
        ),
    )


def _missing(found: PodEvidence, message: str) -> PodDiagnosis | None:
    """Return the diagnosis of a message about a ConfigMap, Secret or key that does not exist."""
    if object_ := _MISSING.search(message):
        kind, name = object_[1].lower(), object_[2]
        if kind == "persistentvolumeclaim":
            return _volume(found, message)
        namespace = found.pod["metadata"].get("namespace", "default")
        return PodDiagnosis(
            kind="config",
            cause=f'the {kind} "{name}" does not exist in namespace {namespace}',
            evidence=_told(message),
            remedies=(
                f"create it, or correct the name in the pod: 'kedge get {kind}s -n {namespace}'",
            ),
        )
    if _KEY.search(message):
        return PodDiagnosis(
            kind="config",
            cause="a ConfigMap or Secret lacks a key that the pod uses",
            evidence=_told(message),
            remedies=("add the key, or make it optional in the pod",),
        )
    return None


def _sandbox(found: PodEvidence) -> PodDiagnosis | None:
    message = found.latest("FailedCreatePodSandBox")
    if found.status.get("phase") != "Pending" or not message or not _waits_to_be_created(found):
        return None
    return PodDiagnosis(
        kind="sandbox",
        cause="the node cannot make the sandbox of the pod",
        evidence=_told(message),
        remedies=(
            "kedge doctor     # what the machine lacks",
            "kedge logs node  # the agent's log",
        ),
    )


# Containers.


class ContainerView(NamedTuple):
    """The spec and status of one container."""

    spec: Fields
    status: Fields
    is_init: bool

    @property
    def name(self) -> str:
        word = "init container" if self.is_init else "container"
        return f'{word} "{self.spec["name"]}"'

    @property
    def ended(self) -> Fields:
        """How it ended last; empty if it has not."""
        for field in ("state", "lastState"):
            if ended := (self.status.get(field) or {}).get("terminated"):
                last: Fields = ended
                return last
        return {}


def _statuses(found: PodEvidence) -> list[Fields]:
    fields = ("initContainerStatuses", "containerStatuses")
    return [each for field in fields for each in found.status.get(field) or ()]


def _waiting(status: Fields) -> Fields:
    waiting: Fields = (status.get("state") or {}).get("waiting") or {}
    return waiting


def _containers(found: PodEvidence) -> Iterator[ContainerView]:
    """Yield the containers in the order in which they start."""
    for kind, field in (
        ("initContainers", "initContainerStatuses"),
        ("containers", "containerStatuses"),
    ):
        known = {each["name"]: each for each in found.status.get(field) or ()}
        for spec in found.pod["spec"].get(kind) or ():
            yield ContainerView(spec, known.get(spec["name"], {}), kind == "initContainers")


def _first_broken(found: PodEvidence) -> PodDiagnosis | None:
    """Return the diagnosis of the first container that keeps the pod from running."""
    for container in _containers(found):
        if container.is_init and _is_done(container):
            continue
        for check in (_image, _config, _start, _killed_for_memory, _probed_to_death, _crashing):
            if diagnosis := check(found, container):
                return diagnosis
        if container.is_init and not _is_sidecar(container.spec) and _is_running(container):
            return PodDiagnosis(
                kind="init",
                cause=f"{container.name} runs, and the other containers wait for its end",
                remedies=(f"kedge logs {found.where} -c {container.spec['name']} -f",),
            )
    return None


def _is_running(container: ContainerView) -> bool:
    return "running" in (container.status.get("state") or {})


def _is_sidecar(spec: Fields) -> bool:
    return bool(spec.get("restartPolicy") == "Always")


def _is_done(container: ContainerView) -> bool:
    if _is_sidecar(container.spec):
        return bool(container.status.get("started"))
    ended = (container.status.get("state") or {}).get("terminated") or {}
    return bool(ended) and ended.get("exitCode") == 0


def _image(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    waiting = _waiting(container.status)
    if waiting.get("reason") not in _IMAGE:
        return None
    image = container.spec["image"]
    pulled = found.latest("Failed", about="ull image") or waiting.get("message")
    return PodDiagnosis(
        kind="image",
        cause=f'the image "{image}" of {container.name} cannot be had: {waiting["reason"]}',
        evidence=_told(pulled),
        remedies=(
            "correct the name, or give the pod imagePullSecrets if the registry needs them",
            "kedge image load FILE  # if you have the image as a file",
            f"kedge up --image-map '{image}=host'  # the machine's own files instead",
        ),
    )


def _config(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    waiting = _waiting(container.status)
    if waiting.get("reason") != "CreateContainerConfigError":
        return None
    message = str(waiting.get("message") or found.latest("Failed"))
    return _missing(found, message) or PodDiagnosis(
        kind="config",
        cause=f"the configuration of {container.name} is not valid",
        evidence=_told(message),
        remedies=(f"kedge explain env {found.where}  # where each variable comes from",),
    )


def _start(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    waiting = _waiting(container.status)
    ended = container.ended
    reason = waiting.get("reason")
    if reason not in _START and ended.get("reason") not in ("StartError", "ContainerCannotRun"):
        return None
    message = ended.get("message") or waiting.get("message") or found.latest("Failed")
    return PodDiagnosis(
        kind="start",
        cause=f"{container.name} cannot be started",
        evidence=_told(message, f"exit code {ended['exitCode']}" if ended else ""),
        remedies=(
            "check command, args, workingDir and the user of the container against its image",
        ),
    )


def _killed_for_memory(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    ended = container.ended
    if ended.get("reason") != "OOMKilled" or _is_fine(found, container):
        return None
    limits = (container.spec.get("resources") or {}).get("limits") or {}
    limit = limits.get("memory")
    of = f"its memory limit of {limit}" if limit else "the memory of the node"
    return PodDiagnosis(
        kind="memory",
        cause=f"{container.name} was killed because it used more than {of}",
        evidence=_told(_how_ended(container)),
        remedies=(
            f"kedge top {found.name} --containers --window 1h --statistic max --once",
            "raise the limit, or make the program use less: 'kedge recommend' proposes amounts",
        ),
    )


def _probed_to_death(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    if _is_fine(found, container) or not container.status.get("restartCount"):
        return None
    failed = found.latest("Unhealthy", about="Liveness probe failed") or found.latest(
        "Unhealthy", about="Startup probe failed"
    )
    killed = found.latest("Killing", about="failed liveness") or found.latest(
        "Killing", about="failed startup"
    )
    if not failed or not (killed or container.ended.get("exitCode") in (137, 143)):
        return None
    return PodDiagnosis(
        kind="probe",
        cause=f"{container.name} is restarted because its {_probe(failed)} probe fails",
        evidence=_told(failed, killed, _how_ended(container)),
        remedies=(
            f"kedge logs {found.where} -c {container.spec['name']} --previous",
            "correct the probe, or give the program more time: initialDelaySeconds, startupProbe",
        ),
    )


def _probe(message: str) -> str:
    return message.partition(" ")[0].lower()


def _crashing(found: PodEvidence, container: ContainerView) -> PodDiagnosis | None:
    ended = container.ended
    if not ended or _is_fine(found, container):
        return None
    is_loop = _waiting(container.status).get("reason") == "CrashLoopBackOff"
    if not is_loop and ended.get("exitCode") == 0 and found.status.get("phase") != "Failed":
        return None
    kind = "init" if container.is_init else "crash-loop" if is_loop else "crash"
    again = " again and again" if is_loop else ""
    return PodDiagnosis(
        kind=kind,
        cause=f"{container.name} ends{again} with exit code {ended.get('exitCode')}",
        evidence=_told(_how_ended(container), ended.get("message")),
        remedies=(
            f"kedge logs {found.where} -c {container.spec['name']}"
            + (" --previous" if is_loop else ""),
            *_meanings(ended.get("exitCode")),
        ),
    )


def _meanings(code: object) -> tuple[str, ...]:
    """Return what an exit code usually means."""
    known = {
        0: "the program ends by itself: a server has to stay, a task belongs in a Job",
        126: "126 means that the command cannot be executed: check its permissions and format",
        127: "127 means that the command was not found in the image",
        137: "137 means SIGKILL: from outside, or after the grace period",
        139: "139 means a segmentation fault of the program",
        143: "143 means SIGTERM: something asked the program to end",
    }
    return (known[code],) if isinstance(code, int) and code in known else ()


def _is_fine(found: PodEvidence, container: ContainerView) -> bool:
    """Whether the container runs and is ready, or has ended well, whatever happened before."""
    if _is_running(container):
        return bool(container.status.get("ready")) or container.is_init
    ended = (container.status.get("state") or {}).get("terminated") or {}
    is_loop = found.pod["spec"].get("restartPolicy", "Always") == "Always"
    return bool(ended) and ended.get("exitCode") == 0 and not (is_loop and not container.is_init)


def _how_ended(container: ContainerView) -> str:
    ended, count = container.ended, container.status.get("restartCount", 0)
    times = f", restarted {count} times" if count > 1 else ", restarted once" if count else ""
    reason = ended.get("reason", "ended")
    at = f" at {ended['finishedAt']}" if ended.get("finishedAt") else ""
    return f"last end: {reason}, exit code {ended.get('exitCode')}{at}{times}"


# Running, but not ready.


def _not_ready(found: PodEvidence) -> PodDiagnosis | None:
    if found.status.get("phase") != "Running":
        return None
    for container in _containers(found):
        if container.is_init or container.status.get("ready") or not _is_running(container):
            continue
        failed = found.latest("Unhealthy", about="Readiness probe") or found.latest(
            "Unhealthy", about="Startup probe"
        )
        return PodDiagnosis(
            kind="probe",
            cause=f"{container.name} runs, but its"
            f" {_probe(failed) if failed else 'readiness'} probe does not succeed",
            evidence=_told(failed),
            remedies=(
                f"kedge logs {found.where} -c {container.spec['name']}",
                "correct the probe, or wait until the program answers it",
            ),
        )
    gates = [each["conditionType"] for each in found.pod["spec"].get("readinessGates") or ()]
    missing = [each for each in gates if found.condition(each).get("status") != "True"]
    if missing:
        return PodDiagnosis(
            kind="gate",
            cause=f"the pod runs, but its readiness gate {missing[0]} is not True",
            remedies=("the controller of that gate sets the condition in the pod's status",),
        )
    return None


def _running(found: PodEvidence) -> PodDiagnosis | None:
    if found.condition("Ready").get("status") != "True":
        return None
    counts = sum(each.get("restartCount", 0) for each in _statuses(found))
    return PodDiagnosis(
        kind="running",
        cause="nothing: the pod runs and is ready",
        evidence=_told(f"its containers were restarted {counts} times" if counts else ""),
        remedies=(f"kedge why {found.where} --slow  # if it is slow",) if counts else (),
    )


CHECKS: Final[tuple[Check, ...]] = (
    _terminating,
    _ended,
    _unscheduled,
    _node_gone,
    _mounts,
    _sandbox,
    _first_broken,
    _not_ready,
    _running,
)
"""In the order of a pod's life."""


def diagnose_creation(workload: str, messages: Sequence[str]) -> PodDiagnosis:
    """Return why a workload has no pods, from its FailedCreate events, the latest last."""
    message = messages[-1] if messages else ""
    if "exceeded quota" in message:
        return PodDiagnosis(
            kind="quota",
            cause=f"a ResourceQuota of the namespace allows no further pods of {workload}",
            evidence=_told(message),
            remedies=("kedge describe resourcequota  # what is used", "raise it, or delete pods"),
        )
    if "per Container is" in message or "per Pod is" in message or "LimitRange" in message:
        return PodDiagnosis(
            kind="limits",
            cause=f"a LimitRange of the namespace refuses the pods of {workload}",
            evidence=_told(message),
            remedies=("kedge explain limits -f FILE  # the source of each amount",),
        )
    if message:
        return PodDiagnosis(
            kind="refused",
            cause=f"the API server refuses the pods of {workload}",
            evidence=_told(message),
            remedies=(f"kedge describe {workload}",),
        )
    return PodDiagnosis(
        kind="none",
        cause=f"{workload} has no pods, and nothing says why",
        remedies=(f"kedge describe {workload}  # replicas, conditions and events",),
    )
