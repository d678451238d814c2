"""LiveUsage: usage, limits and placement in a cluster, followed while the view is open."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.metrics_v1alpha1 import node, pod
from kedge.api.metrics_v1alpha1.windows import Windows
from kedge.api.resource import Resource
from kedge.cli.usage.top.live.facts import (
    NANOS,
    NodeFacts,
    PodFacts,
    node_facts,
    pod_facts,
    unknown_pod,
)
from kedge.cli.usage.top.live.followed_list import FollowedList, ListScope
from kedge.cli.usage.top.live.usage_course import HistoryWindow, TickUsage, UsageCourse
from kedge.cli.usage.top.live.usage_rows import UsageObjects
from kedge.client.client import Client, path_of
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError
from kedge.metrics import usage_history
from kedge.metrics.windows import SHORTEST

SELECTED_SECONDS: Final = 10.0
VISIBLE_SECONDS: Final = 60.0
"""Between two requests for the points of the selected line, and of another one on the screen:
reports extend them by ten-second means in the meantime."""
WITHOUT_SECONDS: Final = 600.0
"""The same for an object whose node keeps no points."""
_BETWEEN_SECONDS: Final = 0.05
"""Between two requests for points: a screen of lines must not keep the server busy."""
_IDLE_SECONDS: Final = 1.0


class _Named(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class ContainerHistory(msgspec.Struct, frozen=True, gc=False):
    """The points of one container."""

    metadata: _Named = _Named()
    history: dict[str, HistoryWindow] = {}


class ObjectHistory(msgspec.Struct, frozen=True, gc=False):
    """The points of a node, or of a pod and its containers."""

    history: dict[str, HistoryWindow] = {}
    containers: list[ContainerHistory] = []


_object_history = msgspec.json.Decoder(ObjectHistory)


class LiveUsage:
    """Follows nodes, and pods of one namespace or of all."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        node_labels: str = "",
        pod_labels: str = "",
    ) -> None:
        self._client = client
        self._clock = clock
        self._pod_labels = pod_labels
        self._rescoped = asyncio.Event()
        self._wanted: Sequence[str] = ()
        """Lines on the screen, the selected one first, whose points are of interest."""
        self.changed = asyncio.Event()
        """Set after each change."""
        self.version = 0
        """Grows with each change."""
        self.end = 0
        """The newest moment that was reported, in seconds since the epoch."""
        self.courses: dict[str, UsageCourse] = {}
        self.nodes = self._followed(core_node.RESOURCE, node_facts, labels=node_labels)
        self.node_usage = self._followed(node.RESOURCE, self._take_node, labels=node_labels)
        self.namespace = namespace
        self._follow_namespace()

    def _followed(
        self,
        resource: Resource[Any],
        keep: Callable[[Any], Any],
        *,
        namespace: str = "",
        labels: str = "",
    ) -> FollowedList[Any]:
        scope = ListScope(resource, namespace, labels)
        return FollowedList(self._client, scope, keep, clock=self._clock, changed=self._change)

    def _follow_namespace(self) -> None:
        where = {"namespace": self.namespace, "labels": self._pod_labels}
        self.pods: FollowedList[PodFacts] = self._followed(core_pod.RESOURCE, pod_facts, **where)
        self.pod_usage: FollowedList[pod.Pod] = self._followed(
            pod.RESOURCE, self._take_pod, **where
        )

    def _change(self) -> None:
        self.version += 1
        self.changed.set()

    def rescope(self, namespace: str) -> None:
        """Follow the pods of another namespace, or of all."""
        self.namespace = namespace
        self._follow_namespace()
        self._rescoped.set()
        self._change()

    async def follow(self) -> None:
        """Keep everything up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.follow())
            tasks.create_task(self.node_usage.follow())
            tasks.create_task(self._follow_pods())
            tasks.create_task(self._ask_histories())

    async def _follow_pods(self) -> None:
        while True:
            self._rescoped.clear()
            async with asyncio.TaskGroup() as tasks:
                lists = (self.pods, self.pod_usage)
                following = [tasks.create_task(each.follow()) for each in lists]
                await self._rescoped.wait()
                for task in following:
                    task.cancel()

    # The state of all lists.

    def objects(self) -> UsageObjects:
        """Return all that is known now. It changes with the next report: copy it to keep it."""
        pods: Mapping[str, PodFacts] = self.pods.found
        if self.pods.refusal:
            # The user may read the usage of pods, but not the pods.
            names = (key.partition("/") for key in self.pod_usage.found)
            pods = {f"{space}/{name}": unknown_pod(space, name) for space, _, name in names}
        nodes: Mapping[str, NodeFacts] = self.nodes.found
        has_all = self.pods.is_ready and not self.namespace and not self._pod_labels
        return UsageObjects(nodes, self.node_usage.found, pods, self.pod_usage.found, has_all)

    @property
    def trouble(self) -> str:
        """Why the data are not up to date."""
        lists = (self.nodes, self.node_usage, self.pods, self.pod_usage)
        return next((each.trouble for each in lists if each.trouble), "")

    @property
    def nodes_refused(self) -> bool:
        """Whether the user may read neither nodes nor their usage."""
        return bool(self.nodes.refusal and self.node_usage.refusal)

    @property
    def pods_refused(self) -> bool:
        return bool(self.pods.refusal and self.pod_usage.refusal)

    # Points.

    def _take_node(self, measured: node.Node) -> node.Node:
        self._take(measured.metadata.name, measured.machine)
        return measured

    def _take_pod(self, measured: pod.Pod) -> pod.Pod:
        key = f"{measured.metadata.namespace}/{measured.metadata.name}"
        self._take(key, pod.windows_of(measured))
        for each in measured.containers:
            place = f"{key}/{each.metadata.name}"
            if measured.total or len(measured.containers) > 1:
                self._take(place, each.metrics)
            else:
                self.courses[place] = self.courses[key]
        return measured

    def _take(self, key: str, windows: Windows) -> None:
        course = self.courses.get(key)
        if course is None:
            course = self.courses[key] = UsageCourse()
        newest = windows.get(SHORTEST)
        if newest is None or not newest.endtime:
            return
        end = int(parse_time(newest.endtime).timestamp())
        used = (newest.mean.get("cpu"), newest.mean.get("memory"))
        course.take(end, TickUsage(*(None if x is None else x.nanos / NANOS for x in used)))
        self.end = max(self.end, end)

    def want(self, keys: Iterable[str]) -> None:
        """Ask nodes for the points of these lines, the first of them most often."""
        self._wanted = tuple(keys)

    async def _ask_histories(self) -> None:
        while True:
            course_key = self._due()
            if course_key is None:
                await self._clock.sleep(_IDLE_SECONDS)
                continue
            # The lists tell whether the server is there; an object without points may be gone.
            with suppress(StatusError, Unreachable, msgspec.MsgspecError, ValueError):
                await self.ask_history(course_key)
            await self._clock.sleep(_BETWEEN_SECONDS)

    def _due(self) -> str | None:
        """Return a line whose points are to be asked for, and note when it is due again."""
        now = self._clock.monotonic()
        for position, key in enumerate(self._wanted):
            course = self.courses.get(key)
            if course is not None and course.due <= now:
                course.due = now + (VISIBLE_SECONDS if position else SELECTED_SECONDS)
                return key
            if course is not None and position == 0:
                # It was one of many before, and is the selected one now.
                course.due = min(course.due, now + SELECTED_SECONDS)
        return None

    async def ask_history(self, key: str) -> None:
        """Ask the node of an object for its points."""
        namespace, name = key.split("/")[:2] if "/" in key else ("", key)
        resource: Resource[Any] = pod.RESOURCE if namespace else node.RESOURCE
        path = path_of(resource, namespace, name)
        reply = await self._client.send("GET", path, {usage_history.PARAMETER: "true"})
        found = _object_history.decode(reply.body)
        own = f"{namespace}/{name}" if namespace else name
        whole = found.history
        if not whole and len(found.containers) == 1:
            whole = found.containers[0].history
        parts = {own: whole}
        parts |= {f"{own}/{each.metadata.name}": each.history for each in found.containers}
        for place, history in parts.items():
            if place in self.courses and history:
                self.courses[place].seed(history)
        # The object may have been forgotten meanwhile.
        if not parts.get(key) and (course := self.courses.get(key)) is not None:
            course.due = self._clock.monotonic() + WITHOUT_SECONDS
        self._change()

    def forget(self) -> None:
        """Drop the points of objects that are gone."""
        known = {*self.node_usage.found}
        for key, measured in self.pod_usage.found.items():
            known |= {key, *(f"{key}/{each.metadata.name}" for each in measured.containers)}
        self.courses = {key: value for key, value in self.courses.items() if key in known}
