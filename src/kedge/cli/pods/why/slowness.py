"""Why a pod is slow: a pure function from its windows, its node and its neighbours to findings.

A finding names one cause, the numbers that show it, and a command that would help. Thresholds are
those at which people notice: a service that is held back in one of twenty periods has twice its
usual 95th percentile.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kedge.api.metrics_v1alpha1.node import Node
from kedge.cli.pods.why.remedy import Remedy, grown
from kedge.cli.pods.why.slow_subject import RECENT, SlowSubject, number
from kedge.cli.usage.detail_columns import amount
from kedge.cli.usage.lines import UsageLine
from kedge.machinery.quantity import Quantity

THROTTLED: Final = 0.05
"""The share of periods from which on a cpu limit counts as a cause."""
WAITED: Final = 0.10
"""The share of time from which on waiting counts as a cause."""
NEAR: Final = 0.90
"""The share of a limit, or of a node, from which on it is used up."""
FAULTS: Final = 10.0
"""Page faults per second that read from a disk, from which on memory counts as short."""
_NEIGHBOUR: Final = 0.1
"""The least cores that a neighbour uses beyond its request."""
_NAMED: Final = 3


class SlowFinding(NamedTuple):
    """One cause."""

    cause: str
    """throttled, starved, oom-killed, memory-limit, memory-pressure or disk."""
    subject: str
    """The container; empty for the pod."""
    summary: str
    evidence: tuple[str, ...]
    advice: str
    command: str


class PodNode(NamedTuple):
    """The node of the pod, as far as the caller may read it."""

    name: str
    usage: Node | None = None
    cpu: float | None = None
    """Allocatable cores."""
    memory: float | None = None
    neighbours: Sequence[UsageLine] = ()
    """The other pods, with their usage of the last minute."""

    def share(self, resource: str) -> float | None:
        """The used share of a resource in the last minute; None if it is not known."""
        room = self.cpu if resource == "cpu" else self.memory
        if self.usage is None or not room or "1m" not in self.usage.machine:
            return None
        used = number(self.usage.machine["1m"].mean, resource)
        return None if used is None else used / room

    @property
    def is_busy(self) -> bool:
        return (self.share("cpu") or 0.0) >= NEAR


def findings(subjects: Sequence[SlowSubject], node: PodNode, remedy: Remedy) -> list[SlowFinding]:
    """Return the causes, the most certain first."""
    checks = (_oom_killed, _throttled, _starved, _near_memory_limit, _memory_pressure, _disk)
    found = (made for check in checks for each in subjects for made in check(each, node, remedy))
    return list(found)


def _oom_killed(subject: SlowSubject, _: PodNode, remedy: Remedy) -> Iterator[SlowFinding]:
    kills = subject.kills
    if not kills and not subject.was_oom_killed:
        return
    processes = f"{kills} process{'' if kills == 1 else 'es'}"
    evidence = [f"{processes} killed in the last day"] if kills else []
    if subject.was_oom_killed:
        evidence.append("its last run ended with OOMKilled")
    limit = subject.resources.limits.get("memory")
    yield SlowFinding(
        "oom-killed",
        subject.name,
        f"{subject.title} ran out of memory and was killed",
        (*evidence, *_memory_lines(subject)),
        "Raise the memory limit" if limit else "Give it a memory request, or a larger node",
        remedy.resize(subject, "memory", grown(limit, 150)) if limit else remedy.recommend(),
    )


def _throttled(subject: SlowSubject, _: PodNode, remedy: Remedy) -> Iterator[SlowFinding]:
    limit = subject.resources.limits.get("cpu")
    if subject.worst("cpu-throttled") < THROTTLED:
        return
    shares = _shares(subject, "cpu-throttled")
    yield SlowFinding(
        "throttled",
        subject.name,
        f"{subject.title} is throttled: its cpu limit holds it back",
        (f"throttled in {shares} of the periods", *_cpu_lines(subject)),
        "Raise the cpu limit, or remove it and keep the request",
        remedy.resize(subject, "cpu", grown(limit, 200)) if limit else remedy.recommend(),
    )


def _starved(subject: SlowSubject, node: PodNode, remedy: Remedy) -> Iterator[SlowFinding]:
    waited = subject.worst("cpu-pressure-some")
    throttled = subject.worst("cpu-throttled") >= THROTTLED
    used, asked = subject.mean("1m", "cpu") or 0.0, subject.request("cpu") or 0.0
    # A throttled container waits for its own limit, and that counts as pressure too.
    waits = waited >= WAITED and (node.is_busy or not throttled)
    # Where pressure is not measured: it wants more than its share of a full node.
    if not waits and not (node.is_busy and used >= asked and used > 0):
        return
    greedy = _greedy(node)
    shown = [f"waited for a processor in {_shares(subject, 'cpu-pressure-some')} of the time"]
    evidence = [*(shown if waited else ()), *_cpu_lines(subject), *_node_lines(node, "cpu")]
    evidence += [_neighbour_line(each) for each in greedy]
    who = f"starved by {greedy[0].namespace}/{greedy[0].name}" if greedy else "starved"
    needed = Quantity.from_milli(max(10, round(used * 1250)))
    if asked < used:
        advice = "Request what it needs, since a busy node shares its cpu by requests"
        command = remedy.request(subject, "cpu", needed)
    else:
        advice = "Limit the neighbours, or move the pod to a less used node"
        command = f"kedge top {node.name} -o wide"
    summary = f"{subject.title} is {who}: its processes wait for a processor of {node.name}"
    yield SlowFinding("starved", subject.name, summary, tuple(evidence), advice, command)


def _near_memory_limit(subject: SlowSubject, _: PodNode, remedy: Remedy) -> Iterator[SlowFinding]:
    limit, most = subject.limit("memory"), subject.most("1h", "memory")
    if not limit or most is None or most < NEAR * limit:
        return
    if subject.kills or subject.was_oom_killed:
        return  # that it was killed says more
    yield SlowFinding(
        "memory-limit",
        subject.name,
        f"{subject.title} is near its memory limit: beyond it, it is killed",
        tuple(_memory_lines(subject)),
        "Raise the memory limit",
        remedy.resize(subject, "memory", grown(subject.resources.limits["memory"], 125)),
    )


def _memory_pressure(subject: SlowSubject, node: PodNode, remedy: Remedy) -> Iterator[SlowFinding]:
    waited, faults = subject.worst("memory-pressure-some"), subject.worst("major-page-faults")
    if waited < WAITED and faults < FAULTS:
        return
    evidence = [f"waited for memory in {_shares(subject, 'memory-pressure-some')} of the time"]
    if faults:
        evidence.append(f"read {amount('major-page-faults', _quantity(faults))} pages from disk")
    limit = subject.limit("memory")
    at_limit = bool(limit) and (subject.most("1h", "memory") or 0.0) >= NEAR * (limit or 0.0)
    where = "its limit" if at_limit else node.name
    if at_limit:
        advice = "Raise the memory limit: the kernel takes pages back that it needs again"
        larger = grown(subject.resources.limits["memory"], 150)
        command = remedy.resize(subject, "memory", larger)
    else:
        advice = "See who uses the memory of the node"
        command = f"kedge top {node.name} --sort-by memory -o wide"
    yield SlowFinding(
        "memory-pressure",
        subject.name,
        f"{subject.title} waits for memory: {where} has too little",
        (*evidence, *_memory_lines(subject), *_node_lines(node, "memory")),
        advice,
        command,
    )


def _disk(subject: SlowSubject, node: PodNode, _: Remedy) -> Iterator[SlowFinding]:
    if subject.worst("io-pressure-some") < WAITED:
        return
    rates = [
        f"{verb} {amount(detail, _quantity(rate))} in the last minute"
        for verb, detail in (("read", "disk-read"), ("wrote", "disk-write"))
        if (rate := subject.mean("1m", detail))
    ]
    waited = f"waited for a disk in {_shares(subject, 'io-pressure-some')} of the time"
    yield SlowFinding(
        "disk",
        subject.name,
        f"{subject.title} waits for a disk",
        (waited, *rates),
        "See who reads and writes on the node",
        f"kedge top {node.name} -o wide",
    )


def _shares(subject: SlowSubject, detail: str) -> str:
    """`62% (1m) and 40% (1h)`."""
    known = {window: subject.mean(window, detail) for window in RECENT}
    return " and ".join(
        f"{amount(detail, _quantity(share))} ({window})"
        for window, share in known.items()
        if share is not None
    )


def _cpu_lines(subject: SlowSubject) -> Iterator[str]:
    used = subject.mean("1m", "cpu")
    if used is None:
        return
    most = subject.most("1h", "cpu") or used
    yield f"used {used:.2f} cores in the last minute, {most:.2f} at most in an hour"
    yield f"cpu request {_declared(subject, 'requests')}, limit {_declared(subject, 'limits')}"


def _declared(subject: SlowSubject, sort: str) -> str:
    return str(getattr(subject.resources, sort).get("cpu", "none"))


def _memory_lines(subject: SlowSubject) -> Iterator[str]:
    most, limit = subject.most("1h", "memory"), subject.resources.limits.get("memory")
    if most is None:
        return
    used = f"used {most / (1 << 20):.0f} MiB at most in an hour"
    yield f"{used}, {most / (limit.nanos / 1e9):.0%} of the limit {limit}" if limit else used


def _node_lines(node: PodNode, resource: str) -> Iterator[str]:
    share = node.share(resource)
    if share is not None:
        yield f"{node.name} used {share:.0%} of its {resource} in the last minute"


def _greedy(node: PodNode) -> list[UsageLine]:
    """The neighbours that use the most cpu beyond their requests."""
    beyond = {each.key: each for each in node.neighbours if _excess(each) >= _NEIGHBOUR}
    return sorted(beyond.values(), key=_excess, reverse=True)[:_NAMED]


def _excess(line: UsageLine) -> float:
    return (number(line.usage, "cpu") or 0.0) - (number(line.requests, "cpu") or 0.0)


def _neighbour_line(line: UsageLine) -> str:
    used, asked = number(line.usage, "cpu") or 0.0, line.requests.get("cpu", "none")
    return f"neighbour {line.namespace}/{line.name} used {used:.2f} cores, cpu request {asked}"


def _quantity(value: float) -> Quantity:
    return Quantity(round(value * 1_000_000_000))
