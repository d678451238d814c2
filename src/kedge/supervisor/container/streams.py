"""Standard streams of a container: to its log, and to attached clients."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from kedge.supervisor.container.logs import ContainerLog, LineSplitter
from kedge.supervisor.kernel import devices
from kedge.supervisor.loop import READABLE, WRITABLE, EventLoop, Timer

_CHUNK: Final = 65_536
_AHEAD: Final = 1 << 20
"""Bytes that may wait for an attached client before the container is made to wait."""
_PATIENCE: Final = 10.0
"""Seconds that a container waits for an attached client that reads nothing, which is then
disconnected."""
_LAST_CHUNKS: Final = 64


class OutputSink:
    """Writes to a descriptor as fast as the other side reads."""

    def __init__(self, loop: EventLoop, descriptor: int, changed: "Changed | None") -> None:
        self._loop = loop
        self.descriptor = descriptor
        """-1 once it is closed."""
        self._changed = changed
        """Called when there is room again, and when the sink is closed. Without it, the reader has
        no time limit."""
        self._pending = bytearray()
        self._ending = False
        self._moved = False
        """Whether the other side has taken something since the last look."""
        self._timer: Timer | None = None
        os.set_blocking(descriptor, False)

    @property
    def full(self) -> bool:
        return len(self._pending) > _AHEAD

    def write(self, data: bytes) -> None:
        if self.descriptor < 0:
            return
        waiting = bool(self._pending)
        self._pending += data
        if not waiting:
            self._attempt()
            if self._pending:
                self._loop.on(self.descriptor, WRITABLE, self._go_on)
                if self._timer is None and self._changed is not None:
                    self._timer = self._loop.after(_PATIENCE, self._look)

    def finish(self) -> None:
        """Close when all has been written."""
        self._ending = True
        if not self._pending:
            self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.descriptor >= 0:
            self._loop.off(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1
            self._pending.clear()
            if self._changed is not None:
                self._changed(self)

    def _attempt(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self.descriptor, self._pending)]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _go_on(self) -> None:
        was_full = self.full
        self._attempt()
        if self.descriptor < 0:
            return
        self._moved = True
        if not self._pending and self._ending:
            self.close()
        elif not self._pending:
            self._loop.off(self.descriptor)
        if was_full and not self.full and self._changed is not None:
            self._changed(self)

    def _look(self) -> None:
        """Disconnect a reader that reads nothing."""
        self._timer = None
        if self._pending and not self._moved:
            self.close()
        elif self._pending:
            self._moved = False
            self._timer = self._loop.after(_PATIENCE, self._look)


Changed = Callable[[OutputSink], None]


class ContainerOutput:
    """One stream of a container, read to its end."""

    def __init__(
        self, loop: EventLoop, descriptor: int, lines: LineSplitter, log: ContainerLog
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._lines = lines
        self._log = log
        self.sinks: list[OutputSink] = []
        self._paused = False
        os.set_blocking(descriptor, False)
        loop.on(descriptor, READABLE, self._read)

    def tee(self, descriptor: int) -> OutputSink:
        """Copy later output to a descriptor."""
        sink = OutputSink(self._loop, descriptor, self._changed)
        self.sinks.append(sink)
        return sink

    def _changed(self, sink: OutputSink) -> None:
        if sink.descriptor < 0 and sink in self.sinks:
            self.sinks.remove(sink)
        if self._paused and not any(each.full for each in self.sinks):
            self._paused = False
            if self._descriptor >= 0:
                self._loop.on(self._descriptor, READABLE, self._read)

    def drain(self) -> None:
        """Read the rest of the pipe, and close."""
        for _ in range(_LAST_CHUNKS):
            if not self._read():
                break
        self._end()

    def _read(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            # A terminal whose other side is closed says so with an error.
            data = b""
        if not data:
            self._end()
            return False
        self._log.write(self._lines.cut(data, time.time_ns()))
        for sink in list(self.sinks):
            sink.write(data)
        if any(each.full for each in self.sinks):
            # The container waits for the slowest reader, as it would for a terminal.
            self._paused = True
            self._loop.off(self._descriptor)
        return True

    def _end(self) -> None:
        if self._descriptor < 0:
            return
        self._loop.off(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._log.write(self._lines.end(time.time_ns()))
        for sink in list(self.sinks):
            sink.finish()


class Streams:
    """All streams of one container."""

    def __init__(self, loop: EventLoop, log: str) -> None:
        self._loop = loop
        self.log = ContainerLog(log)
        self._outputs: dict[str, ContainerOutput] = {}
        self._input = -1
        self._terminal: OutputSink | None = None
        self._callers: list[socket.socket] = []

    def pipes(self, *, stdin: bool) -> tuple[int, int, int]:
        """The container's ends of its pipes, to be closed by the caller after forking."""
        source = devices.open_null()
        if stdin:
            os.close(source)
            source, self._input = os.pipe2(os.O_CLOEXEC)
        ends = []
        for name in ("stdout", "stderr"):
            read, write = os.pipe2(os.O_CLOEXEC)
            self._outputs[name] = ContainerOutput(self._loop, read, LineSplitter(name), self.log)
            ends.append(write)
        return source, ends[0], ends[1]

    def terminal(self, descriptor: int) -> None:
        """Take the controlling side of the container's terminal."""
        lines = LineSplitter("stdout", terminal=True)
        self._outputs["stdout"] = ContainerOutput(self._loop, os.dup(descriptor), lines, self.log)
        self._terminal = OutputSink(self._loop, descriptor, None)

    @property
    def controlling(self) -> int:
        """The controlling side of the terminal, -1 if there is none."""
        return self._terminal.descriptor if self._terminal else -1

    def attach(self, *, stdin: bool, once: bool) -> list[int]:
        """Return descriptors for a client: one for a terminal, else standard input (if requested
        and open), output and error."""
        if self._terminal is not None:
            return [self._call()]
        given = []
        if stdin and self._input >= 0:
            given.append(os.dup(self._input))
            if once:
                # From now on the container's input ends when the caller's does.
                os.close(self._input)
                self._input = -1
        for output in self._outputs.values():
            read, write = os.pipe2(os.O_CLOEXEC)
            output.tee(write)
            given.append(read)
        return given

    def finish(self) -> None:
        """Read the remaining output of an ended container and close everything."""
        for output in self._outputs.values():
            output.drain()
        for caller in list(self._callers):
            self._hang_up(caller)
        if self._terminal is not None:
            self._terminal.close()
        if self._input >= 0:
            os.close(self._input)
            self._input = -1
        self.log.close()

    def _call(self) -> int:
        ours, theirs = socket.socketpair()
        self._callers.append(ours)
        ours.setblocking(False)
        self._outputs["stdout"].tee(os.dup(ours.fileno()))
        self._loop.on(ours.fileno(), READABLE, lambda: self._listen(ours))
        return theirs.detach()

    def _listen(self, caller: socket.socket) -> None:
        try:
            data = caller.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and self._terminal is not None:
            # Input that a terminal has no room for is lost, as with any terminal.
            if not self._terminal.full:
                self._terminal.write(data)
        else:
            self._hang_up(caller)

    def _hang_up(self, caller: socket.socket) -> None:
        self._callers.remove(caller)
        self._loop.off(caller.fileno())
        with contextlib.suppress(OSError):
            caller.close()
