"""Create a pod, and stay with it if that is asked for."""

import contextlib
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import FIELD_MANAGER, ApiSession, document_in
from kedge.cli.output import outputs
from kedge.cli.output.progress import ProgressLine
from kedge.cli.output.tables import harmless
from kedge.cli.output.waiting import waiting
from kedge.cli.pods.exec import session
from kedge.cli.pods.exec.session import ExecOptions
from kedge.cli.pods.logs.show import LogFlags, show
from kedge.cli.pods.run.pod import PodOptions, pod
from kedge.client.client import path_of
from kedge.client.view import View
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError

_HOPELESS: Final = ("ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError")
"""Reasons of a waiting container that do not go away by themselves."""
_TROUBLES: Final = ("ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError")
"""Reasons of a waiting container that its user has to know."""


class RunOptions(NamedTuple):
    """The steps besides creating the pod."""

    pod: PodOptions
    attach: bool = False
    remove: bool = False
    quiet: bool = False
    dry_run: bool = False
    output: str = ""


async def run(there: ApiSession, asked: RunOptions) -> int:
    """Create the pod; the exit code is that of its container if the command stays with it."""
    name = asked.pod.name
    reply = await there.client.send(
        "POST",
        path_of(PODS, there.namespace),
        {
            "dryRun": "All" if asked.dry_run else "",
            "fieldManager": FIELD_MANAGER,
            "fieldValidation": "Strict",
        },
        body=msgspec.json.encode(pod(asked.pod)),
    )
    made = document_in(reply.body)
    if asked.output:
        print(outputs.text_of([(PODS, made)], asked.output, alone=True), end="")
    elif not asked.attach:
        print(f"pod/{name} created{' (server dry run)' if asked.dry_run else ''}")
    if asked.dry_run or not asked.attach:
        return 0
    try:
        return await _stay(there, asked)
    finally:
        if asked.remove:
            await _remove(there, asked)


async def _stay(there: ApiSession, asked: RunOptions) -> int:
    """Show the output of the container, and pass input on; returns its exit code."""
    name = asked.pod.name
    status = await _until(there, name, lambda state: "running" in state or "terminated" in state)
    if "running" in status and (asked.pod.stdin or asked.pod.tty):
        if not asked.quiet and asked.pod.tty:
            print("If you don't see a command prompt, try pressing enter.", flush=True)
        await _attach(there, asked)
    else:
        await show(there, LogFlags(pod=name, container=name, follow=True))
    status = await _watch_until(there, PodProgress(name), lambda state: "terminated" in state)
    return int(status["terminated"].get("exitCode", 0))


async def _attach(there: ApiSession, asked: RunOptions) -> None:
    wanted = asked.pod
    query = {"container": wanted.name, "stdout": "true"}
    query |= {"stdin": "true"} if wanted.stdin else {}
    query |= {"tty": "true"} if wanted.tty else {"stderr": "true"}
    path = path_of(PODS, there.namespace, wanted.name, "attach")
    socket = await session.connect(there, f"{path}?{urlencode(query)}")
    options = ExecOptions(wanted.name, (), stdin=wanted.stdin, tty=wanted.tty)
    is_raw = wanted.tty and wanted.stdin
    # The container may end before the server has said how; its status tells then.
    with (
        session.raw_terminal() if is_raw else contextlib.nullcontext(),
        contextlib.suppress(Failure),
    ):
        await session.converse(socket, options)


async def _until(there: ApiSession, name: str, is_reached: Any) -> Mapping[str, Any]:
    """Return the state of the pod's container once it is as asked; raises Failure if the pod
    cannot start, or is gone."""
    seen = PodProgress(name)
    with waiting(lambda: seen.text):
        return await _watch_until(there, seen, is_reached)


class PodProgress:
    """A pod, and why its container does not run yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = f"pod/{name}"
        self._line = ProgressLine(sys.stderr, SystemClock())

    def state(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state of the container; raises Failure if it can never run."""
        found = _state(document)
        waits = found.get("waiting") or {}
        why = ": ".join(filter(None, (waits.get("reason"), waits.get("message"))))
        text = harmless(f"pod/{self.name}" + (f": {why}" if why else ""))
        if waits.get("reason") in _TROUBLES and text != self.text:
            # Without a terminal, this line is the only sign of the cause.
            self._line.line(f"waiting for {text}")
        self.text = text
        return found


async def _watch_until(there: ApiSession, seen: PodProgress, is_reached: Any) -> Mapping[str, Any]:
    view, name = View(PODS, document_in), seen.name
    while True:
        document = await there.get(PODS, name, there.namespace)
        if (found := seen.state(document)) and is_reached(found):
            return found
        version = document["metadata"]["resourceVersion"]
        async with there.client.watch_as(
            view, there.namespace, version=version, fields=f"metadata.name={name}"
        ) as events:
            async for event in events:
                if event.type == "DELETED":
                    raise Failure(f"pod {name} was deleted")
                found = seen.state(event.object) if event.type != "BOOKMARK" else {}
                if found and is_reached(found):
                    return found


def _state(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the container; raises Failure if it can never run."""
    status = document.get("status") or {}
    for each in status.get("containerStatuses") or ():
        state: Mapping[str, Any] = each.get("state") or {}
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in _HOPELESS:
            raise Failure(f"{waiting['reason']}: {waiting.get('message', '')}")
        return state
    if status.get("phase") == "Failed":
        raise Failure(f"pod failed: {status.get('reason', '')}: {status.get('message', '')}")
    return {}


async def _remove(there: ApiSession, asked: RunOptions) -> None:
    name = asked.pod.name
    try:
        await there.client.send("DELETE", path_of(PODS, there.namespace, name))
    except StatusError as error:
        if error.code != 404:
            raise
    if not asked.quiet:
        print(f'pod "{name}" deleted')
