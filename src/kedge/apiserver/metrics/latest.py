"""Latest: what nodes have reported last, of themselves and of their pods."""

from itertools import chain
from typing import Final

import msgspec

from kedge.api.core_v1 import node, pod
from kedge.api.metrics_v1alpha1.frame import TICK, Answer, Frame, MeasuredPod
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

    __slots__ = ("end_tick", "entry", "heard", "pods", "resolution")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.end_tick = 0
        self.heard = 0.0
        self.resolution = TICK
        self.pods: dict[str, Entry] = {}

    @property
    def patience(self) -> int:
        """Seconds after which what it has said no longer counts."""
        return max(3 * self.resolution, LEAST_SILENCE)


class Latest:
    """The newest document of every node and pod; nothing here outlives the process."""

    def __init__(self, cache: WatchCache, clock: Clock) -> None:
        self._clock = clock
        self._pods = cache.of(pod.RESOURCE)
        self._nodes = cache.of(node.RESOURCE)
        versions = Versions(clock)
        self.versions = versions
        self.pods = Collection(versions, clock)
        self.nodes = Collection(versions, clock)
        self.counts: dict[str, int] = {"taken": 0, "foreign-pods": 0}
        """Frames taken and refused, by why; and pods left out because they are not the node's."""
        self._reporters: dict[str, Reporter] = {}
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
        self._check_time(reporter, frame)
        self.counts["taken"] += 1
        reporter.end_tick = frame.end_tick
        reporter.heard = self._clock.monotonic()
        reporter.resolution = min(frame.resolution, 86400)
        self.versions.catch_up()
        self._take_pods(reporter, frame)
        reporter.entry.report_node(frame._replace(pods=()))
        self.nodes.put(reporter.entry)
        self.pods.settle()
        self.nodes.settle()
        return Answer(resolution=TICK if self._watched(name) else 0)

    def refused(self, why: str, error: StatusError) -> StatusError:
        """Count a refusal."""
        self.counts[why] = self.counts.get(why, 0) + 1
        return error

    def _reporter(self, name: str, item: Item) -> Reporter:
        reporter = self._reporters.get(name)
        if reporter is None:
            known = _known.decode(item.body).metadata
            reporter = Reporter(Entry(name, "", name, known.uid, known.labels))
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
        known, put = reporter.pods, self.pods.put
        oldest = frame.end_tick - reporter.patience // TICK
        fresh = 0
        # Their names are kept once, with the entries.
        rows = frame._replace(pods=())
        for measured in frame.pods:
            entry = known.get(measured.uid)
            if entry is None:
                entry = self._admitted(reporter, measured)
                if entry is None:
                    self.counts["foreign-pods"] += 1
                    continue
            elif entry.end_tick >= measured.end_tick:
                continue
            entry.report_pod(rows, measured)
            if measured.end_tick > oldest:
                fresh += 1
                put(entry)
            else:
                self.pods.entries[entry.key] = entry
        if fresh < len(known):
            for entry in known.values():
                if entry.end_tick <= oldest:
                    self.pods.hide(entry)

    def _admitted(self, reporter: Reporter, measured: MeasuredPod) -> Entry | None:
        """A place for a pod that is reported for the first time, if it is this node's."""
        node_name = reporter.entry.name
        item = self._pods.get(self._pods.resource.key(measured.namespace, measured.name))
        if item is None:
            return None
        found = _known.decode(item.body)
        if found.metadata.uid != measured.uid or found.spec.nodeName != node_name:
            return None
        labels = found.metadata.labels
        entry = Entry(node_name, measured.namespace, measured.name, measured.uid, labels)
        reporter.pods[measured.uid] = entry
        return entry

    def _watched(self, name: str) -> bool:
        """Whether somebody waits for news of this node or of its pods."""
        named = (wanted.fields.exact("metadata.name") for wanted in self.nodes.listeners.values())
        bound = (wanted.node for wanted in self.pods.listeners.values())
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


def _unprocessable(why: str) -> StatusError:
    return StatusError(422, "Invalid", why)
