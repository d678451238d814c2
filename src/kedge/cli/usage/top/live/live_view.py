"""The live view: reads keys, follows the cluster, draws frames."""

import asyncio
import io
import locale
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kedge.cli.objects.connection import ApiSession
from kedge.cli.output.plot import Glyphs, glyphs
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top.live.frame import Scene, frame, shown
from kedge.cli.usage.top.live.live_usage import LiveUsage
from kedge.cli.usage.top.live.log_text import LogText
from kedge.cli.usage.top.live.screen import CursesScreen, LiveScreen
from kedge.cli.usage.top.live.screen_lines import ScreenLine
from kedge.cli.usage.top.live.usage_rows import UsageObjects, UsageRow, rows
from kedge.cli.usage.top.live.view_state import (
    Level,
    Mode,
    Place,
    Shown,
    SortOrder,
    ViewState,
    permitted,
    pressed,
    settled,
)
from kedge.cli.usage.top.live.why_text import why_text
from kedge.cli.usage.top.view import check_node
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.durations import human_age

_PAUSE_SECONDS: Final = 0.25
"""Between a report and the frame that shows it: reports come in bursts."""
_TICK_SECONDS: Final = 1.0
_STALE_SECONDS: Final = 45
"""Age of the newest report that is worth a message."""
_SILENT_READS: Final = 20
"""Times that a terminal may have something to read and no key in it: then it is gone."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def start_state(look: TopOptions, namespace: str) -> ViewState:
    """Return the state that the flags of the command line describe."""
    level = Level.NODES if look.of_nodes else Level.PODS
    if look.containers and not look.of_nodes and not look.node:
        level = Level.CONTAINERS
    sort = SortOrder("name", False) if look.sort_by == "name" else SortOrder(look.sort_by, True)
    everywhere = look.of_nodes or look.everywhere or bool(look.node)
    return ViewState(
        place=Place(level, node=look.node),
        namespace="" if everywhere else namespace,
        own_namespace=namespace,
        sort=sort,
        window=look.window,
        statistic=look.statistic,
    )


async def show_live(there: ApiSession, look: TopOptions) -> int:
    """Show the view until the user quits; the exit code is 0, or 128 and the number of a signal."""
    if look.node:
        await check_node(there, look.node)
    state = start_state(look, there.namespace)
    if there.given_namespace and not look.everywhere:
        state = state._replace(namespace=there.given_namespace)
    clock = SystemClock()
    usage = LiveUsage(
        there.client,
        clock,
        namespace=state.namespace,
        node_labels=look.labels if look.of_nodes else "",
        pod_labels="" if look.of_nodes else look.labels,
    )
    # An error of the first request is reported as by any other command, on a terminal as it was.
    await (usage.nodes if look.of_nodes else usage.pods).fetch()
    # A locale without UTF-8 decides, even if Python itself would write UTF-8.
    draw = glyphs(locale.getencoding())
    # Warnings of the server would be written across the screen.
    with CursesScreen() as screen, redirect_stderr(io.StringIO()):
        return await LiveView(there, usage, screen, state, clock=clock, draw=draw).run()


class _Frozen(NamedTuple):
    """The data of a paused view."""

    objects: UsageObjects
    end: int


class LiveView:
    """The view on one screen."""

    def __init__(
        self,
        there: ApiSession,
        usage: LiveUsage,
        screen: LiveScreen,
        state: ViewState,
        *,
        clock: Clock,
        draw: Glyphs,
    ) -> None:
        self._there = there
        self._usage = usage
        self._screen = screen
        self._clock = clock
        self._draw = draw
        self._wake = asyncio.Event()
        self._changed = usage.changed
        self._frozen: _Frozen | None = None
        self._rows: list[UsageRow] = []
        self._rows_of: object = None
        """The state and the version of the data that the lines were made from."""
        self._pane: asyncio.Task[None] | None = None
        self._pane_of = (Mode.TABLE, "")
        self._log = LogText(there.client, clock, self._changed.set)
        self._why: list[str] = []
        self._frozen_text: list[str] | None = None
        self._silent_reads = 0
        self._signal = 0
        self.state = state

    async def run(self) -> int:
        """Draw until the user quits."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self.read_keys)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        if isinstance(self._screen, CursesScreen):
            loop.add_signal_handler(signal.SIGWINCH, self._again(self._screen.resize))
            loop.add_signal_handler(signal.SIGTSTP, self._again(self._screen.suspend))
        try:
            await self.show()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (*_SIGNALS, signal.SIGWINCH, signal.SIGTSTP):
                loop.remove_signal_handler(number)
        return 128 + self._signal if self._signal else 0

    def _stop(self, number: int) -> None:
        self._signal = number
        self.state = self.state._replace(mode=Mode.ENDED)
        self._wake.set()

    def _again(self, act: Callable[[], None]) -> Callable[[], None]:
        def handler() -> None:
            act()
            self._wake.set()

        return handler

    async def show(self) -> None:
        """Draw frames, after keys at once and after reports a moment later."""
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [
                    tasks.create_task(self._usage.follow()),
                    tasks.create_task(self._wake_after_reports()),
                    tasks.create_task(self._tick()),
                ]
                while self.state.mode is not Mode.ENDED:
                    self._wake.clear()
                    self._arrange()
                    self._sync_pane(tasks)
                    self._screen.draw(self.lines())
                    await self._wake.wait()
                for each in (*helpers, self._pane):
                    if each is not None:
                        each.cancel()
        except BaseExceptionGroup as group:
            # Report the first failure like a failure of any other command.
            raise _first(group) from None

    async def _wake_after_reports(self) -> None:
        while True:
            await self._changed.wait()
            await self._clock.sleep(_PAUSE_SECONDS)
            self._changed.clear()
            self._wake.set()

    async def _tick(self) -> None:
        """Ages on the screen grow."""
        count = 0
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            count += 1
            if self._usage.trouble or self._age() > _STALE_SECONDS:
                self._wake.set()
            if count % 60 == 0:
                self._usage.forget()

    # Keys.

    def read_keys(self) -> None:
        """Take in the keys that were pressed."""
        self._silent_reads += 1
        for key in self._screen.pressed():
            self._silent_reads = 0
            self.press(key)
            self._wake.set()
            if self.state.mode is Mode.ENDED:
                # The keys after it are for the shell.
                return
        if self._silent_reads > _SILENT_READS:
            self._stop(signal.SIGHUP)

    def press(self, key: str) -> None:
        """Do what a key says."""
        before = self.state
        self.state = pressed(before, key, self._shown())
        if self.state.paused != before.paused:
            self._freeze()
        if self.state.mode is not before.mode:
            self._frozen_text = None
        self._arrange()

    def _freeze(self) -> None:
        if not self.state.paused:
            self._frozen, self._frozen_text = None, None
            return
        self._frozen = _Frozen(_copied(self._usage.objects()), self._usage.end)
        self._frozen_text = self._text() if self.state.mode is Mode.LOGS else None

    # The data of a frame.

    def _arrange(self) -> None:
        """Make the lines anew if they may have changed, and keep the selection on the screen."""
        usage = self._usage
        self.state = permitted(
            self.state, nodes=not usage.nodes_refused, all_pods=not usage.pods_refused
        )
        if self.state.namespace != usage.namespace:
            usage.rescope(self.state.namespace)
        place = self.state.place._replace(selected="", position=0, top=0)
        made_of = (
            place,
            self.state.sort,
            self.state.window,
            self.state.statistic,
            self._frozen is None and usage.version,
        )
        if made_of != self._rows_of:
            objects = usage.objects() if self._frozen is None else self._frozen.objects
            self._rows = rows(objects, self.state)
            self._rows_of = made_of
        here = self._shown()
        self.state = settled(self.state, here)
        self._want(here)

    def _want(self, here: Shown) -> None:
        """Ask nodes for the points of the lines on the screen, unless nothing new is wanted."""
        if self.state.paused or self.state.mode not in (Mode.TABLE, Mode.FILTER):
            self._usage.want(())
            return
        place = self.state.place
        visible = [*here.rows[place.top : place.top + here.page]]
        selected = here.rows[place.position : place.position + 1]
        self._usage.want([*selected, *(key for key in visible if key not in selected)])

    def _shown(self) -> Shown:
        return shown(self.state, self._scene(), self._screen.size())

    def lines(self) -> list[ScreenLine]:
        """Return the frame of this moment."""
        return frame(self.state, self._scene(), self._screen.size(), self._draw)

    def _scene(self) -> Scene:
        usage = self._usage
        end = usage.end if self._frozen is None else self._frozen.end
        return Scene(
            rows=self._rows,
            courses=usage.courses,
            end=end,
            time=datetime.fromtimestamp(end, UTC).astimezone().strftime("%H:%M:%S") if end else "",
            trouble=self._trouble(),
            note=self._note(),
            empty=self._empty(),
            text=self._text() if self._frozen_text is None else self._frozen_text,
        )

    def _age(self) -> float:
        """Seconds since the newest report."""
        return self._clock.now().timestamp() - self._usage.end if self._usage.end else 0.0

    def _trouble(self) -> str:
        age = human_age(int(self._age()))
        if self._usage.trouble:
            known = f" (data of {age} ago)" if self._usage.end else ""
            return f"Connection lost, retrying{known}: {self._usage.trouble}"
        if self._age() > _STALE_SECONDS and self._frozen is None:
            return f"No node has reported for {age}"
        return ""

    def _note(self) -> str:
        """The permission that the user lacks."""
        usage = self._usage
        if usage.nodes_refused and not usage.pods_refused:
            return f"You may not read nodes: these are pods. {usage.nodes.refusal}"
        refusals = (usage.pods.refusal, usage.pod_usage.refusal, usage.node_usage.refusal)
        return next(filter(None, refusals), "")

    def _empty(self) -> str:
        usage = self._usage
        lists = usage.nodes if self.state.place.level is Level.NODES else usage.pods
        if lists.refusal:
            return "Nothing can be shown without this permission."
        if not lists.is_ready:
            return "Reading ..."
        where = f" in namespace {self.state.namespace}" if self.state.namespace else ""
        return f"There are no {self.state.place.level}{where}."

    # Logs and why.

    def _text(self) -> list[str]:
        if self.state.mode is Mode.LOGS:
            return self._log.lines
        return self._why if self.state.mode is Mode.WHY else []

    def _sync_pane(self, tasks: asyncio.TaskGroup) -> None:
        """Start what the mode needs, and stop what the former mode needed."""
        wanted = (self.state.mode, self.state.subject)
        if wanted == self._pane_of:
            return
        self._pane_of = wanted
        if self._pane is not None:
            self._pane.cancel()
            self._pane = None
        mode, subject = wanted
        if mode is Mode.LOGS:
            ascii_only = not self._draw.has_dots
            self._log = LogText(
                self._there.client, self._clock, self._changed.set, ascii_only=ascii_only
            )
            self._pane = tasks.create_task(self._log.follow(*self._container(subject)))
        elif mode is Mode.WHY:
            self._why = ["Reading ..."]
            self._pane = tasks.create_task(self._explain(subject))

    def _container(self, subject: str) -> tuple[str, str, str]:
        """Return the namespace, pod and container that a line is about."""
        namespace, name, *rest = subject.split("/")
        if rest:
            return namespace, name, rest[0]
        facts = self._usage.pods.found.get(subject)
        return namespace, name, facts.main if facts else ""

    async def _explain(self, subject: str) -> None:
        namespace, name, _ = self._container(subject)
        self._why = await why_text(self._there, namespace, name)
        self._wake.set()


def _first(error: BaseException) -> BaseException:
    """Return the first error of groups in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _copied(objects: UsageObjects) -> UsageObjects:
    return UsageObjects(
        dict(objects.nodes),
        dict(objects.node_usage),
        dict(objects.pods),
        dict(objects.pod_usage),
        objects.has_all_pods,
    )
