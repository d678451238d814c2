"""Serves the logs of containers."""

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError, bad_request
from kedge.node.host.inotify import Inotify
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.runtime.runtime import (
    NotFoundError,
    RunState,
    Runtime,
    RuntimeContainer,
    RuntimeFailure,
)
from kedge.node.server.log_reader import LogLines, LogOptions, LogReader
from kedge.web.message import Query, Sink

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks of a follower for new data and the end of the container."""
_STREAMS: Final = {"": "", "All": "", "Stdout": "stdout", "Stderr": "stderr"}


def log_options(query: Query, now: datetime) -> LogOptions:
    """Return the options in a query. Raises 400 and 422."""
    stream = query.get("stream")
    if stream not in _STREAMS:
        raise bad_request(f'invalid stream type "{stream}"')
    return LogOptions(
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        timestamps=query.flag("timestamps"),
        tail=_number(query, "tailLines", 0),
        since=_since(query, now),
        limit=_number(query, "limitBytes", 1),
        stream=_STREAMS[stream],
    )


def _number(query: Query, name: str, least: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise bad_request('{"message": "Unable to decode query."}') from None
    if number < least:
        raise StatusError(422, "Invalid", '{"message": "Invalid request."}')
    return number


def _since(query: Query, now: datetime) -> str:
    seconds = _number(query, "sinceSeconds", 1)
    if seconds is not None:
        return _stamp(now - timedelta(seconds=min(seconds, 10**9)))
    text = query.get("sinceTime")
    if not text:
        return ""
    try:
        return _stamp(parse_time(text))
    except ValueError:
        raise bad_request('{"message": "Unable to decode query."}') from None


def _stamp(moment: datetime) -> str:
    """Return a time in the format of logs, so that the two can be compared as text."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z"


def record_of(
    pod: Pod, observed: PodRuntimeState, name: str, *, previous: bool
) -> RuntimeContainer:
    """Return the container of a log request. Raises 400 with the kubelet's messages."""
    status = _status(pod, name)
    if status is None:
        raise bad_request(f'container "{name}" in pod "{pod.metadata.name}" is not available')
    meant = _container_id(pod, status, observed, previous=previous)
    for record in observed.by_name.get(name, ()):
        if record.url == meant:
            return record
    raise bad_request(f"unable to retrieve container logs for {meant}")


def _status(pod: Pod, name: str) -> ContainerStatus | None:
    told = pod.status
    everyone = (
        *told.containerStatuses,
        *told.initContainerStatuses,
        *told.ephemeralContainerStatuses,
    )
    return next((each for each in everyone if each.name == name), None)


def _container_id(
    pod: Pod, status: ContainerStatus, observed: PodRuntimeState, *, previous: bool
) -> str:
    """Return the id of a container, chosen by its status."""
    in_pod = f'container "{status.name}" in pod "{pod.metadata.name}"'
    state, last = status.state, status.lastState.terminated
    if previous:
        if last is None or not last.containerID:
            raise bad_request(f"previous terminated {in_pod} not found")
        return last.containerID
    if state.running is not None:
        return status.containerID
    if state.terminated is not None and state.terminated.containerID:
        return state.terminated.containerID
    newest = observed.newest(status.name)
    if newest is not None and newest.state is RunState.RUNNING:
        return newest.url  # The container has started since the status was written.
    if last is not None and last.containerID:
        return last.containerID
    if state.terminated is not None:
        raise bad_request(f"{in_pod} is terminated")
    reason = state.waiting.reason if state.waiting is not None else ""
    match reason:
        case "ErrImagePull":
            reason = "image can't be pulled"
        case "ImagePullBackOff":
            reason = "trying and failing to pull image"
    raise bad_request(f"{in_pod} is waiting to start: {reason}")


class LogResponse:
    """Streams the log of one container to a client."""

    def __init__(
        self, record: RuntimeContainer, asked: LogOptions, runtime: Runtime, inotify: Inotify
    ) -> None:
        self._record = record
        self._asked = asked
        self._runtime = runtime
        self._inotify = inotify

    async def write_to(self, sink: Sink) -> None:
        """Write the requested part; a follower is served until the container has ended."""
        reader = LogReader(self._record.log_path)
        try:
            if self._asked.tail is not None:
                await asyncio.to_thread(reader.skip_to_tail, self._asked.tail)
            await self._write_lines(reader, LogLines(self._asked), sink)
        finally:
            reader.close()

    async def _write_lines(self, reader: LogReader, lines: LogLines, sink: Sink) -> None:
        over = not self._asked.follow
        while not lines.done:
            # In a thread, because a log is large, and skipping lines by time never waits for the
            # client.
            data, shown = await asyncio.to_thread(_next, reader, lines)
            if data:
                sink.write(shown)
                await sink.drain()
            elif reader.goes_on():
                continue
            elif over:
                return
            else:
                over = await self._wait(reader)

    async def _wait(self, reader: LogReader) -> bool:
        """Return when there may be more data; true if the container has ended and this is the last
        read."""
        written = asyncio.Event()
        with self._inotify.watching(self._record.log_path, written):
            if await self._has_ended():
                return True
            # Covers data that was written between the last read and the start of the watch.
            if reader.has_more():
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(written.wait(), LOOK_SECONDS)
        return False

    async def _has_ended(self) -> bool:
        try:
            return (await self._runtime.container(self._record.id)).state is not RunState.RUNNING
        except (NotFoundError, RuntimeFailure):
            return True


def _next(reader: LogReader, lines: LogLines) -> tuple[bool, bytes]:
    """Return whether there was more data, and the part that the client gets."""
    data = reader.read()
    return bool(data), lines.feed(data) if data else b""
