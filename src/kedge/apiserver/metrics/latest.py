"""Latest: what nodes have reported last, of themselves and of their pods."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Final

import msgspec

from kedge.api.core_v1 import node, pod
from kedge.api.metrics_v1alpha1.frame import (
    PREFIX,
    TICK,
    Answer,
    Frame,
    MeasuredPod,
    Reader,
    travelling,
)
from kedge.apiserver.metrics.collection import Collection, Entry, Versions
from kedge.apiserver.watchcache import Change, Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, not_found

LEAST_SILENCE: Final = 60
"""Seconds for which a silent node's last report counts at least."""
FUTURE: Final = 30
"""Seconds by which a node's clock may be ahead."""
_SWEEP: Final = 5.0


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    nodeName: str = ""  # noqa: N815


class _Known(msgspec.Struct, frozen=True):
    """What must be known of an object of which something is reported."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


_known = msgspec.json.Decoder(_Known)


class Reporter:
    """One node: when it last reported, and its pods by their uids."""

    __slots__ = ("end_tick", "entry", "heard", "live", "pods", "reader", "resolution", "taken")

    def __init__(self, entry: Entry, reader: Reader) -> None:
        self.entry = entry
        self.end_tick = 0
        self.heard = 0.0
        self.resolution = TICK
        self.pods: dict[str, Entry] = {}
        self.reader = reader
        self.taken: Sequence[MeasuredPod] | None = None
        """The pods of the last frame, if all of them have a place here; None if they have to be
        gone through, whatever the next frame says."""
        self.live: list[Entry] = []
        """Those of them of which each frame says something new."""

    @property
    def patience(self) -> int:
        """Seconds after which what it has said no longer counts."""
        return max(3 * self.resolution, LEAST_SILENCE)


class Latest:
    """The newest document of every node and pod; nothing here outlives the process."""

    def __init__(self, cache: WatchCache, clock: Clock, *, usage_window: str = "10s") -> None:
        self._clock = clock
        self._pods = cache.of(pod.RESOURCE)
        self._nodes = cache.of(node.RESOURCE)
        versions = Versions(clock)
        self.versions = versions
        self.pods = Collection(versions, clock)
        self.nodes = Collection(versions, clock)
        self.counts: dict[str, int] = {"taken": 0, "foreign-pods": 0}
        """Frames taken and refused, by why; and pods left out because they are not the node's."""
        self.usage_window = usage_window
        """The window whose mean metrics.k8s.io tells: the shortest, so that new pods count soon."""
        self._reporters: dict[str, Reporter] = {}
        self._newcomer = ("", Reader())
        """Who last had a frame read without having reported before."""
        self._pods.listeners.add(self._pod_changed)
        self._nodes.listeners.add(self._node_changed)

    # Frames.

    def take(self, name: str, frame: Frame) -> Answer:
        """Take over what a node reports; StatusError if it cannot be so."""
        item = self._nodes.get(self._nodes.resource.key("", name))
        if item is None:
            raise self.refused("unknown-node", not_found("", "nodes", name))
        if frame.node != name:
            why = f'the frame is about node "{frame.node}"'
            raise self.refused("wrong-node", StatusError(403, "Forbidden", why))
        reporter = self._reporter(name, item)
        frame = travelling(frame)
        self._check_time(reporter, frame)
        self.counts["taken"] += 1
        reporter.end_tick = frame.end_tick
        reporter.heard = self._clock.monotonic()
        reporter.resolution = min(frame.resolution, 86400)
        self.versions.catch_up()
        self._take_pods(reporter, frame)
        reporter.entry.report_node(frame)
        self.nodes.put(reporter.entry)
        self.pods.settle()
        self.nodes.settle()
        return Answer(resolution=TICK if self._watched(name) else 0)

    def reader(self, name: str) -> Reader:
        """Who reads the frames of a node; of one that is new, this one and those to come."""
        reporter = self._reporters.get(name)
        if reporter is not None:
            return reporter.reader
        self._newcomer = (name, Reader())
        return self._newcomer[1]

    def refused(self, why: str, error: StatusError) -> StatusError:
        """Count a refusal."""
        self.counts[why] = self.counts.get(why, 0) + 1
        return error

    def turned_away(self, target: str, error: StatusError) -> None:
        """Something was refused before it got here: too much to be read at all, it may be."""
        if error.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and target.startswith(PREFIX):
            self.refused("oversized", error)

    def _reporter(self, name: str, item: Item) -> Reporter:
        reporter = self._reporters.get(name)
        if reporter is None:
            known = _known.decode(item.body).metadata
            newcomer, reader = self._newcomer
            entry = Entry(name, "", name, known.uid, known.labels)
            reporter = Reporter(entry, reader if newcomer == name else Reader())
        return reporter

    def _check_time(self, reporter: Reporter, frame: Frame) -> None:
        end, now = frame.end_tick * TICK, self._clock.now().timestamp()
        if end > now + FUTURE:
            why = f"the frame ends {end - now:.0f} s from now: compare the node's clock"
            raise self.refused("future", _unprocessable(why))
        if end < now - max(3 * min(frame.resolution, 86400), LEAST_SILENCE):
            raise self.refused("old", _unprocessable(f"the frame ended {now - end:.0f} s ago"))
        if frame.end_tick <= reporter.end_tick:
            why = "a frame that ended then or later has been taken already"
            raise self.refused("replayed", StatusError(409, "Conflict", why))

    def _take_pods(self, reporter: Reporter, frame: Frame) -> None:
        self._reporters[reporter.entry.name] = reporter
        oldest = frame.end_tick - reporter.patience // TICK
        if frame.pods is not reporter.taken:
            self._meet(reporter, frame, oldest)
        self.pods.put_all(reporter.live, frame)
        if len(reporter.live) < len(reporter.pods):
            for entry in reporter.pods.values():
                if entry.end_tick <= oldest:
                    self.pods.hide(entry)

    def _meet(self, reporter: Reporter, frame: Frame, oldest: int) -> None:
        """Go through pods that are not those of the last frame."""
        known, strangers = reporter.pods, 0
        reporter.live = []
        for measured in frame.pods:
            entry = known.get(measured.uid) or self._admitted(reporter, measured)
            if entry is None or (entry.namespace, entry.name) != measured[:2]:
                strangers += 1
            elif not measured.end_tick:
                entry.report_pod(frame, measured)
                reporter.live.append(entry)
            elif entry.end_tick < measured.end_tick:
                entry.report_pod(frame, measured)
                if measured.end_tick > oldest:
                    self.pods.put(entry)
                else:
                    self.pods.entries[entry.key] = entry
        for entry in known.values():
            if entry.frame is not frame and entry.frame.pods:
                entry.part()
        reporter.pods = {entry.uid: entry for entry in known.values()}
        self.counts["foreign-pods"] += strangers
        reporter.taken = None if strangers else frame.pods

    def _admitted(self, reporter: Reporter, measured: MeasuredPod) -> Entry | None:
        """A place for a pod that is reported for the first time, if it is this node's."""
        node_name = reporter.entry.name
        item = self._pods.get(self._pods.resource.key(measured.namespace, measured.name))
        if item is None:
            return None
        found = _known.decode(item.body)
        if found.metadata.uid != measured.uid or found.spec.nodeName != node_name:
            return None
        labels = _shared(tuple(found.metadata.labels.items()))
        entry = Entry(node_name, measured.namespace, measured.name, measured.uid, labels)
        reporter.pods[measured.uid] = entry
        return entry

    def _watched(self, name: str) -> bool:
        """Whether somebody waits for news of this node or of its pods."""
        nodes, pods = self.nodes.listeners.values(), self.pods.listeners.values()
        if not nodes and not pods:
            return False
        named = (each.fields.exact("metadata.name") for each in nodes if not each.patient)
        bound = (each.node for each in pods if not each.patient)
        return any(only is None or only == name for only in chain(named, bound))

    # What else happens.

    def _pod_changed(self, change: Change | None) -> None:
        if change is None:
            return
        key = change.item.key.removeprefix(self._pods.resource.prefix)
        entry = self.pods.entries.get(key)
        if entry is None:
            return
        if change.type == "DELETED":
            self._forget_pod(entry)
        elif (labels := change.item.labels) != entry.labels:
            self.versions.catch_up()
            self.pods.relabel(entry, labels)
        else:
            return
        self.pods.settle()

    def _forget_pod(self, entry: Entry) -> None:
        self.versions.catch_up()
        self.pods.drop(entry)
        reporter = self._reporters.get(entry.node)
        if reporter is not None:
            reporter.pods.pop(entry.uid, None)
            reporter.taken = None

    def _node_changed(self, change: Change | None) -> None:
        if change is None:
            return
        name = change.item.key.removeprefix(self._nodes.resource.prefix)
        reporter = self._reporters.get(name)
        if reporter is None:
            return
        if change.type == "DELETED":
            self._forget_node(reporter)
        elif (labels := change.item.labels) != reporter.entry.labels:
            self.versions.catch_up()
            self.nodes.relabel(reporter.entry, labels)
            self.nodes.settle()

    def _forget_node(self, reporter: Reporter) -> None:
        self.versions.catch_up()
        del self._reporters[reporter.entry.name]
        self.nodes.drop(reporter.entry)
        for entry in reporter.pods.values():
            self.pods.drop(entry)
        self.nodes.settle()
        self.pods.settle()

    async def run(self) -> None:
        """List no longer what silent nodes have said, for ever."""
        while True:
            await self._clock.sleep(_SWEEP)
            self.sweep()

    def sweep(self) -> None:
        now = self._clock.monotonic()
        silent = [
            each
            for each in self._reporters.values()
            if each.entry.listed and now - each.heard > each.patience
        ]
        for reporter in silent:
            self.versions.catch_up()
            self.nodes.hide(reporter.entry)
            for entry in reporter.pods.values():
                self.pods.hide(entry)
        if silent:
            self.nodes.settle()
            self.pods.settle()
        self.nodes.forget()
        self.pods.forget()


@lru_cache(4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Labels; many pods have the same."""
    return dict(labels)


def _unprocessable(why: str) -> StatusError:
    return StatusError(422, "Invalid", why)
