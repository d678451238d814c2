"""The table of usage, printed once or repainted as nodes report."""

import asyncio
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1 import persistent_volume_claim as core_claim
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.metrics_v1alpha1 import aggregate, node, persistent_volume_claim, pod
from kedge.api.metrics_v1alpha1.windows import Windows
from kedge.api.resource import Resource
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import outputs
from kedge.cli.usage import lines as usage
from kedge.cli.usage.lines import NOTHING, TopOptions, UsageLine
from kedge.cli.usage.top import claims, groups
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError, not_found
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import SHORTEST

_PAUSE: Final = 0.25
"""Seconds between two paintings at least."""
_ROUND: Final = 2.0
"""Seconds within which all nodes have reported a tick."""
_HISTORY: Final = 20
_RELOOK: Final = 10.0
_REVIEW: Final = 60.0
"""Seconds between two looks at what pods ask for: at least, if one is new; and at most, since they
may be resized."""
_AGAIN: Final = 1.0
"""Seconds before a server that does not answer is asked again."""
_HOME: Final = "\x1b[H"
_CLEAR: Final = "\x1b[2J"
_REST_OF_LINE: Final = "\x1b[K"
_REST: Final = "\x1b[J"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


async def show(connection: ApiSession, look: TopOptions, *, live: bool, as_json: bool) -> int:
    """Print the current usage; at a terminal repeat it until Ctrl-C."""
    scene = TopView(connection, look)
    await scene.fetch()
    if as_json:
        print(outputs.json_text(scene.document()))
        return 0
    if live and _can_repaint():
        await _repaint(scene)
    elif not scene.empty:
        print("\n".join(scene.table(trends=False)))
    else:
        print(scene.nothing(), file=sys.stderr)
    return 0


async def record(connection: ApiSession, look: TopOptions) -> int:
    """Print the usage as a line of JSON, now and after each round of reports, until Ctrl-C."""
    scene = TopView(connection, look)
    await scene.fetch()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scene.follow())
            while True:
                print(scene.recorded(), flush=True)
                scene.changed.clear()
                await scene.changed.wait()
                # The nodes of a cluster report one after the other.
                await scene.clock.sleep(_ROUND)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def check_node(connection: ApiSession, name: str) -> None:
    """Raise 404 if there is no such node, rather than show nothing."""
    try:
        await connection.client.get(node.RESOURCE, name)
    except StatusError as error:
        if error.code != 404:
            return
        # Rather what is wrong with the name than what a node has not reported yet.
        try:
            await connection.client.get(core_node.RESOURCE, name)
        except StatusError as inner:
            if inner.code == 404:
                raise not_found("", "nodes", name) from None


class TopView:
    """The usage that `kedge top` shows, and its history."""

    def __init__(self, connection: ApiSession, look: TopOptions) -> None:
        self._connection = connection
        self._look = look
        self._group = groups.KINDS.get(look.what)
        """The resource of groups of pods, if those are shown."""
        self._of_claims = look.what in claims.NAMES
        self._resource, self._core = _resources(look)
        self._namespace = _namespace(connection, look)
        self._fields = f"spec.nodeName={look.node}" if look.node else ""
        self._measured: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        self._version = ""
        """Up to where it is known what was reported; nothing if everything is to be asked for."""
        self._trouble = ""
        """Why nothing new can be known."""
        self._looked = 0.0
        self._histories: dict[str, deque[Quantity]] = {}
        self.clock: Clock = SystemClock()
        self.changed = asyncio.Event()

    async def fetch(self) -> None:
        """All that is reported now."""
        if self._look.node:
            await check_node(self._connection, self._look.node)
        found = await self._connection.client.list(
            self._resource, self._namespace, labels=self._look.labels, fields=self._fields
        )
        self._version = found.version
        self._measured = {_key(each): each for each in found.items}
        await self._fetch_known()
        for each in found.items:
            self._remember(each)

    async def _fetch_known(self) -> None:
        """Fetch the requests and limits of the objects, if permitted."""
        self._looked = self.clock.monotonic()
        if self._group is not None:
            return
        try:
            found = await self._connection.client.list(
                self._core, self._namespace, labels=self._look.labels, fields=self._fields
            )
        except StatusError:
            return
        self._known = {_key(each): each for each in found.items}

    async def follow(self) -> None:
        """Take in what is reported, for ever; a server that has gone is waited for."""
        while True:
            try:
                await self._follow_once()
            except Unreachable as error:
                await self._wait(str(error))
            except StatusError as error:
                if error.code == 410:
                    self._version = ""
                elif error.code == 429 or error.code >= 500:
                    await self._wait(error.message)
                else:
                    raise

    async def _wait(self, trouble: str) -> None:
        self._trouble = trouble
        self.changed.set()
        await self.clock.sleep(_AGAIN)

    async def _follow_once(self) -> None:
        if not self._version:
            await self.fetch()
        async with self._connection.client.watch(
            self._resource,
            self._namespace,
            version=self._version,
            labels=self._look.labels,
            fields=self._fields,
        ) as events:
            self._trouble = ""
            self.changed.set()
            async for event in events:
                self._version = event.version or self._version
                if event.type == "BOOKMARK":
                    continue
                key = _key(event.object)
                if event.type == "DELETED":
                    self._measured.pop(key, None)
                else:
                    self._measured[key] = event.object
                    self._remember(event.object)
                    await self._look_again(key)
                self.changed.set()

    async def _look_again(self, key: str) -> None:
        age = self.clock.monotonic() - self._looked
        if age > (_REVIEW if key in self._known else _RELOOK):
            await self._fetch_known()

    def _remember(self, measured: Any) -> None:
        if self._group is not None or self._of_claims:
            return
        for key, windows in _histories(measured):
            amount = windows[SHORTEST].mean.get("cpu", NOTHING) if SHORTEST in windows else NOTHING
            self._histories.setdefault(key, deque(maxlen=_HISTORY)).append(amount)

    def lines(self) -> list[UsageLine]:
        if self._group is not None or self._of_claims:
            return []
        make: Callable[..., list[UsageLine]] = (
            usage.node_lines if self._look.of_nodes else usage.pod_lines
        )
        return make(self._measured.values(), self._known, self._look)

    def table(self, *, trends: bool) -> list[str]:
        """The lines; if it is not up to date, the first says why."""
        return [*([f"({self._trouble})"] if self._trouble else []), *self._table(trends)]

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        if self._group is not None:
            return groups.documents(self._measured.values(), self._look)
        if self._of_claims:
            return claims.documents(self._measured.values(), self._known, self._look)
        return usage.documents(self.lines(), self._look)

    def recorded(self) -> str:
        """One line of a recording."""
        return json.dumps({"time": format_time(self.clock.now()), **self.document()})

    @property
    def empty(self) -> bool:
        return not self._measured

    def _table(self, trends: bool) -> list[str]:
        if self._group is not None and self._measured:
            return groups.table(list(self._measured.values()), self._look)
        if self._of_claims and self._measured:
            return claims.table(self._measured.values(), self._known, self._look)
        lines = self.lines()
        if not lines:
            return [self.nothing()]
        if not trends or self._look.plain:
            return usage.table(lines, self._look, None)
        drawn = {key: usage.sparkline(list(past)) for key, past in self._histories.items()}
        return usage.table(lines, self._look, drawn)

    def nothing(self) -> str:
        where = f" in {self._namespace} namespace" if self._namespace else ""
        return f"Nothing has been reported lately{where}."


def _resources(look: TopOptions) -> tuple[Resource[Any], Resource[Any]]:
    """Return the usage to show, and the objects that it is about."""
    if look.what in claims.NAMES:
        return persistent_volume_claim.RESOURCE, core_claim.RESOURCE
    if look.of_nodes:
        return node.RESOURCE, core_node.RESOURCE
    return groups.KINDS.get(look.what, pod.RESOURCE), core_pod.RESOURCE


def _namespace(connection: ApiSession, look: TopOptions) -> str:
    """Where pods are looked for; a node has pods of all namespaces, unless one is named."""
    if groups.KINDS.get(look.what) is aggregate.NAMESPACES:
        return connection.given_namespace
    if look.of_nodes or look.everywhere:
        return ""
    return connection.given_namespace if look.node else connection.namespace


def _key(obj: Any) -> str:
    namespace = obj.metadata.namespace
    return f"{namespace}/{obj.metadata.name}" if namespace else str(obj.metadata.name)


def _histories(measured: Any) -> list[tuple[str, Windows]]:
    """Return the usage to draw for an object, by the keys of lines."""
    place = f"{measured.metadata.namespace}/{measured.metadata.name}"
    if isinstance(measured, node.Node):
        inner, whole = measured.systemContainers, measured.machine
    else:
        inner, whole = measured.containers, pod.windows_of(measured)
    found = [(f"{place}/{each.metadata.name}", each.metrics) for each in inner]
    return [(f"{place}/", whole), *found]


def _can_repaint() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


async def _repaint(scene: TopView) -> None:
    trends = "utf" in (sys.stdout.encoding or "").lower()
    try:
        async with _screen(), asyncio.TaskGroup() as tasks:
            tasks.create_task(scene.follow())
            while True:
                _paint(scene.table(trends=trends))
                await scene.clock.sleep(_PAUSE)
                await scene.changed.wait()
                scene.changed.clear()
    except BaseExceptionGroup as group:
        # Report the first failure like a failure of any other command.
        raise group.exceptions[0] from None


@asynccontextmanager
async def _screen() -> AsyncIterator[None]:
    sys.stdout.write(_HIDE + _HOME + _CLEAR)
    try:
        yield
    finally:
        sys.stdout.write(f"{_SHOW}\n")
        sys.stdout.flush()


def _paint(lines: Sequence[str]) -> None:
    """The lines from the top of the screen on, as many and as much of them as there is room for."""
    width, height = shutil.get_terminal_size()
    shown = [line[:width] + _REST_OF_LINE for line in lines[: height - 1]]
    sys.stdout.write(_HOME + "\n".join(shown) + "\n" + _REST)
    sys.stdout.flush()
