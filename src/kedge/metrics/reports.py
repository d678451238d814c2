"""UsageReports: accepts the frames of nodes and keeps the newest usage of what they measure."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Final, NamedTuple, Protocol

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, not_found
from kedge.metrics.aggregates import Aggregates, PodGroups
from kedge.metrics.collection import Collection, Versions
from kedge.metrics.frame import Frame, FramePod, in_whole_numbers
from kedge.metrics.frame_codec import PREFIX, FrameReader, FrameReply
from kedge.metrics.usage_object import ClaimUsageObject, UsageObject
from kedge.metrics.windows import DAY, SHORTEST, TICK_SECONDS

LEAST_SILENCE: Final = 60
"""Seconds for which the last report of a silent node stays listed, at least."""
FUTURE: Final = 30
"""Seconds by which the clock of a node may be ahead."""
_SWEEP_SECONDS: Final = 5.0


class ObjectIdentity(NamedTuple):
    """The facts about a node or pod of the cluster that a report is checked against."""

    uid: str
    labels: Mapping[str, str]
    node: str = ""
    """The node to which a pod is bound."""


class ObjectIdentities(Protocol):
    """The nodes and pods of the cluster (kedge.apiserver.metrics.cluster)."""

    def node_identity(self, name: str) -> ObjectIdentity | None: ...

    def pod_identity(self, namespace: str, name: str) -> ObjectIdentity | None: ...

    def claims_of(self, namespace: str, pod: str) -> frozenset[str]:
        """The names of the claims that a pod uses."""
        ...


class Reporter:
    """One node: the time of its last report, its pods and their claims by uid."""

    __slots__ = (
        *("claims", "end_tick", "heard", "live", "node", "pods", "reader", "resolution", "taken"),
    )

    def __init__(self, node: UsageObject, reader: FrameReader) -> None:
        self.node = node
        self.end_tick = 0
        self.heard = 0.0
        self.resolution = TICK_SECONDS
        self.pods: dict[str, UsageObject] = {}
        self.claims: dict[str, UsageObject] = {}
        self.reader = reader
        self.taken: Sequence[FramePod] | None = None
        """The pods of the last frame, if all of them were accepted. If the next frame has the very
        same object, its pods need no check. None forces one."""
        self.live: list[UsageObject] = []
        """The pods that have new rows in each frame."""

    @property
    def patience(self) -> int:
        """Seconds of silence after which its last report is no longer listed."""
        return max(3 * self.resolution, LEAST_SILENCE)


class UsageReports:
    """The newest usage of every node, pod and mounted claim, in memory only.

    Its owner calls `run`, and the relabel and deleted methods as the cluster changes.
    """

    def __init__(
        self,
        identities: ObjectIdentities,
        groups: PodGroups,
        clock: Clock,
        *,
        usage_window: str = SHORTEST,
    ) -> None:
        self._identities = identities
        self._clock = clock
        versions = Versions(clock)
        self.versions = versions
        self.pods = Collection(versions, clock)
        self.nodes = Collection(versions, clock)
        self.claims = Collection(versions, clock)
        self.aggregates = Aggregates(self.pods, groups, clock)
        self.counts: dict[str, int] = {"taken": 0, "foreign-pods": 0}
        """Frames by outcome, and pods that were left out because they are not the node's."""
        self.usage_window = usage_window
        """The window whose mean metrics.k8s.io reports."""
        self._reporters: dict[str, Reporter] = {}
        self._newcomer = ("", FrameReader())
        """The node that last sent a frame without having reported before, and its reader."""

    def take(self, name: str, frame: Frame) -> FrameReply:
        """Accept the report of a node; raises StatusError."""
        # A reporter goes with its node, so that only a new one is looked up.
        reporter = self._reporters.get(name) or self._new_reporter(name)
        if frame.node != name:
            why = f'the frame is about node "{frame.node}"'
            raise self.refused("wrong-node", StatusError(403, "Forbidden", why))
        frame = in_whole_numbers(frame)
        self._check_time(reporter, frame)
        self.counts["taken"] += 1
        reporter.end_tick = frame.end_tick
        reporter.heard = self._clock.monotonic()
        reporter.resolution = min(frame.resolution, DAY)
        self.versions.catch_up()
        self._take_pods(reporter, frame)
        reporter.node.report_node(frame)
        self.nodes.put(reporter.node)
        self.pods.settle()
        self.nodes.settle()
        self.claims.settle()
        return FrameReply(resolution=TICK_SECONDS if self._is_hurried(name) else 0)

    def reader(self, name: str) -> FrameReader:
        """The reader for the frames of a node, the same for each of them."""
        reporter = self._reporters.get(name)
        if reporter is not None:
            return reporter.reader
        self._newcomer = (name, FrameReader())
        return self._newcomer[1]

    def refused(self, why: str, error: StatusError) -> StatusError:
        """Count a refusal."""
        self.counts[why] = self.counts.get(why, 0) + 1
        return error

    def refused_unread(self, target: str, error: StatusError) -> None:
        """Count a request that the listener refused because of its size."""
        if error.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and target.startswith(PREFIX):
            self.refused("oversized", error)

    def _new_reporter(self, name: str) -> Reporter:
        identity = self._identities.node_identity(name)
        if identity is None:
            raise self.refused("unknown-node", not_found("", "nodes", name))
        newcomer, reader = self._newcomer
        node = UsageObject(name, "", name, identity.uid, identity.labels)
        return Reporter(node, reader if newcomer == name else FrameReader())

    def _check_time(self, reporter: Reporter, frame: Frame) -> None:
        end, now = frame.end_tick * TICK_SECONDS, self._clock.now().timestamp()
        if end > now + FUTURE:
            why = f"the frame ends {end - now:.0f} s from now: compare the node's clock"
            raise self.refused("future", _unprocessable(why))
        if end < now - max(3 * min(frame.resolution, DAY), LEAST_SILENCE):
            raise self.refused("old", _unprocessable(f"the frame ended {now - end:.0f} s ago"))
        if frame.end_tick <= reporter.end_tick:
            why = "a frame that ended then or later has been taken already"
            raise self.refused("replayed", StatusError(409, "Conflict", why))

    def _take_pods(self, reporter: Reporter, frame: Frame) -> None:
        self._reporters[reporter.node.name] = reporter
        oldest = frame.end_tick - reporter.patience // TICK_SECONDS
        if frame.pods is not reporter.taken:
            self._check_pods(reporter, frame, oldest)
        self.pods.put_all(reporter.live, frame)
        self.claims.put_all(list(reporter.claims.values()), frame)
        if len(reporter.live) < len(reporter.pods):
            for pod in reporter.pods.values():
                if pod.end_tick <= oldest:
                    self.pods.hide(pod)

    def _check_pods(self, reporter: Reporter, frame: Frame, oldest: int) -> None:
        """Match the pods of a frame, which are not those of the last one, with the cluster's."""
        known, foreign = reporter.pods, 0
        reporter.live = []
        for sent in frame.pods:
            if not sent.containers:
                continue
            pod = known.get(sent.uid) or self._new_pod(reporter, sent)
            if pod is None or (pod.namespace, pod.name) != sent[:2]:
                foreign += 1
            elif not sent.end_tick:
                pod.report_pod(frame, sent)
                reporter.live.append(pod)
            elif pod.end_tick < sent.end_tick:
                pod.report_pod(frame, sent)
                if sent.end_tick > oldest:
                    self.pods.put(pod)
                else:
                    self.pods.entries[pod.key] = pod
        for pod in known.values():
            if pod.frame is not frame and pod.frame.pods:
                pod.detach()
        reporter.pods = {pod.uid: pod for pod in known.values()}
        foreign += self._check_claims(reporter, frame)
        self.counts["foreign-pods"] += foreign
        reporter.taken = None if foreign else frame.pods

    def _check_claims(self, reporter: Reporter, frame: Frame) -> int:
        """Match the claims of a frame, which are pods without containers, with those that the pods
        of the node use; return how many are not."""
        sent = [each for each in frame.pods if not each.containers]
        used = self._used_claims(reporter) if sent else frozenset()
        known, reporter.claims = reporter.claims, {}
        for each in sent:
            if (each.namespace, each.name) in used and self._is_free(reporter, each):
                claim = known.pop(each.uid, None) or _new_claim(reporter, each)
                claim.report_pod(frame, each)
                reporter.claims[each.uid] = claim
        for claim in known.values():
            self.claims.drop(claim)
        return len(sent) - len(reporter.claims)

    def _used_claims(self, reporter: Reporter) -> frozenset[tuple[str, str]]:
        return frozenset(
            (pod.namespace, name)
            for pod in reporter.pods.values()
            for name in self._identities.claims_of(pod.namespace, pod.name)
        )

    def _is_free(self, reporter: Reporter, sent: FramePod) -> bool:
        """Whether no other node reports the claim: pods of several nodes may share one."""
        found = self.claims.get(sent.namespace, sent.name)
        return found is None or not found.listed or found.node == reporter.node.name

    def _new_pod(self, reporter: Reporter, sent: FramePod) -> UsageObject | None:
        """An object for a pod that is reported for the first time, if it is bound to this node."""
        node = reporter.node.name
        identity = self._identities.pod_identity(sent.namespace, sent.name)
        if identity is None or identity.uid != sent.uid or identity.node != node:
            return None
        labels = _shared(tuple(identity.labels.items()))
        pod = UsageObject(node, sent.namespace, sent.name, sent.uid, labels)
        reporter.pods[sent.uid] = pod
        return pod

    def _is_hurried(self, name: str) -> bool:
        """Whether a watch waits for news of this node or of its pods."""
        if self.aggregates.hurries_nodes:
            return True
        nodes = self.nodes.listeners.values()
        pods = (*self.pods.listeners.values(), *self.claims.listeners.values())
        if not nodes and not pods:
            return False
        named = (each.fields.exact("metadata.name") for each in nodes if each.hurries_nodes)
        bound = (each.node for each in pods if each.hurries_nodes)
        return any(only is None or only == name for only in chain(named, bound))

    def relabel_pod(self, key: str, labels: Mapping[str, str]) -> None:
        """Follow the labels of a pod of the cluster."""
        pod = self.pods.entries.get(key)
        if pod is not None and labels != pod.labels:
            self.versions.catch_up()
            self.pods.relabel(pod, labels)
            self.pods.settle()

    def relabel_node(self, name: str, labels: Mapping[str, str]) -> None:
        """Follow the labels of a node of the cluster."""
        reporter = self._reporters.get(name)
        if reporter is not None and labels != reporter.node.labels:
            self.versions.catch_up()
            self.nodes.relabel(reporter.node, labels)
            self.nodes.settle()

    def pod_deleted(self, key: str) -> None:
        """Drop a pod that the cluster has no longer."""
        pod = self.pods.entries.get(key)
        if pod is None:
            return
        self.versions.catch_up()
        self.pods.drop(pod)
        reporter = self._reporters.get(pod.node)
        if reporter is not None:
            reporter.pods.pop(pod.uid, None)
            reporter.taken = None
        self.pods.settle()

    def node_deleted(self, name: str) -> None:
        """Drop a node that the cluster has no longer, and its pods."""
        reporter = self._reporters.pop(name, None)
        if reporter is None:
            return
        self.versions.catch_up()
        self.nodes.drop(reporter.node)
        for pod in reporter.pods.values():
            self.pods.drop(pod)
        for claim in reporter.claims.values():
            self.claims.drop(claim)
        for collection in (self.nodes, self.pods, self.claims):
            collection.settle()

    async def run(self) -> None:
        """Remove the reports of silent nodes from lists, and serve aggregates, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.aggregates.run())
            while True:
                await self._clock.sleep(_SWEEP_SECONDS)
                self.sweep()

    def sweep(self) -> None:
        now = self._clock.monotonic()
        silent = [
            each
            for each in self._reporters.values()
            if each.node.listed and now - each.heard > each.patience
        ]
        for reporter in silent:
            self.versions.catch_up()
            self.nodes.hide(reporter.node)
            for pod in reporter.pods.values():
                self.pods.hide(pod)
            for claim in reporter.claims.values():
                self.claims.hide(claim)
        for collection in (self.nodes, self.pods, self.claims):
            if silent:
                collection.settle()
            collection.forget()


def _new_claim(reporter: Reporter, sent: FramePod) -> UsageObject:
    return ClaimUsageObject(reporter.node.name, sent.namespace, sent.name, sent.uid, {})


@lru_cache(4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """One mapping for all pods with the same labels."""
    return dict(labels)


def _unprocessable(why: str) -> StatusError:
    return StatusError(422, "Invalid", why)
