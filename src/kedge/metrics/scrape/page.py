"""KubeletPage: the readings in the Prometheus text of a kubelet's /metrics/resource."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

PATH: Final = "/metrics/resource"

_LINE: Final = re.compile(
    rb"^(node|pod|container)_(cpu_usage_seconds_total|memory_working_set_bytes|start_time_seconds)"
    rb"(?:\{([^}\n]*)\})? (\S+)(?: (\d{1,15}))?\r?$",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r'(\w+)="([^"\\]*)"')
_MOST: Final = 2.0**60
"""Larger numbers of bytes or nanoseconds are ignored."""
_AHEAD: Final = 30.0
"""Seconds by which the clock of a node may be ahead."""


class TimedReading(NamedTuple):
    """The counters of one thing, with the times of their reading and of its start."""

    time: float
    """Seconds since the epoch, by the clock of the node."""
    cpu: int
    """Nanoseconds of processor time so far; -1 if unknown."""
    memory: float
    """Bytes of the working set; -1 if unknown."""
    started: float
    """When it was started, in seconds since the epoch; 0 if unknown."""


class PodReadings(NamedTuple):
    """The readings of a pod."""

    total: TimedReading | None
    containers: dict[str, TimedReading]


class KubeletPage(NamedTuple):
    """The readings of a node and its pods."""

    machine: TimedReading | None
    pods: dict[tuple[str, str], PodReadings]
    """By namespace and name."""


class _PartialReading:
    """A reading whose lines have not all been read."""

    __slots__ = ("cpu", "memory", "started", "time")

    def __init__(self) -> None:
        self.cpu = -1
        self.memory = -1.0
        self.started = self.time = 0.0


_Place = tuple[str, str, str]
"""Namespace, pod and container; empty for a pod as a whole, and for the node."""


def parse(text: bytes, now: float) -> KubeletPage:
    """Read the known lines and skip the others; lines without a timestamp are from `now`."""
    drafts: dict[_Place, _PartialReading] = {}
    for kind, what, labels, number, stamp in _LINE.findall(text):
        place = _place(labels)
        value = _number(number)
        if value < 0 or place is None or _kind(place) != kind:
            continue
        draft = drafts.get(place)
        if draft is None:
            draft = drafts[place] = _PartialReading()
        _note(draft, what, value, int(stamp) / 1000 if stamp else now)
    return _page(drafts, now + _AHEAD)


def _note(draft: _PartialReading, what: bytes, value: float, time: float) -> None:
    match what:
        case b"start_time_seconds":
            # Its timestamp is that of the page, not of a measurement.
            draft.started = value
            return
        case b"cpu_usage_seconds_total":
            if value * 1e9 < _MOST:
                draft.cpu = round(value * 1e9)
        case _:
            draft.memory = value
    draft.time = max(draft.time, time)


def _page(drafts: dict[_Place, _PartialReading], latest: float) -> KubeletPage:
    machine = None
    pods: dict[tuple[str, str], PodReadings] = {}
    for (namespace, name, container), draft in drafts.items():
        if not draft.time:
            continue
        started = draft.started if draft.started < draft.time else 0.0
        reading = TimedReading(draft.time, draft.cpu, draft.memory, started)
        if not name:
            # Kept even if its clock is wrong, so that the scraper reports it.
            machine = reading
            continue
        if draft.time > latest:
            continue
        known = pods.get((namespace, name))
        if known is None:
            known = pods[namespace, name] = PodReadings(None, {})
        if container:
            known.containers[container] = reading
        else:
            pods[namespace, name] = known._replace(total=reading)
    return KubeletPage(machine, pods)


@lru_cache(65536)
def _place(labels: bytes) -> _Place | None:
    """The subject of a line; None if its labels do not name one."""
    if not labels:
        return "", "", ""
    found = dict(_LABEL.findall(labels.decode("utf-8", "replace")))
    namespace, name = found.get("namespace", ""), found.get("pod", "")
    return (namespace, name, found.get("container", "")) if namespace and name else None


def _kind(place: _Place) -> bytes:
    _, name, container = place
    return b"container" if container else b"pod" if name else b"node"


def _number(text: bytes) -> float:
    """A number from 0 on; -1 for any other text."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if 0 <= value < _MOST else -1.0
