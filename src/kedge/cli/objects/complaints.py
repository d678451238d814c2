"""Errors and warnings of the server, in the words that kubectl would use."""

import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TextIO

from kedge.cli.output.tables import harmless
from kedge.client.transport import Call, Reply, Stream, Transport
from kedge.machinery.errors import StatusCause, StatusError

_WARNING: Final = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')


def complaint(error: StatusError, deed: str = "") -> str:
    """The refusal as one paragraph; `deed`, such as `creating "x.yaml"`, is what was being done."""
    return harmless(_complaint(error, deed))


def _complaint(error: StatusError, deed: str) -> str:
    if error.reason == "Unauthorized":
        return f"error: You must be logged in to the server ({error.message})"
    if error.reason == "Invalid":
        return _invalid(error)
    message = f"error when {deed}: {error.message}" if deed else error.message
    reason = f" ({error.reason})" if error.reason else ""
    return f"Error from server{reason}: {message}"


def next_step(error: StatusError, namespace: str) -> str:
    """Return the command that helps after a refusal; empty if the refusal says all."""
    details = error.details or {}
    kind, group, name = (str(details.get(each) or "") for each in ("kind", "group", "name"))
    if error.reason == "NotFound" and kind and name:
        resource = f"{kind}.{group}" if group else kind
        return harmless(f"'kedge get {resource} -n {namespace}' lists those that exist")
    if error.reason == "Forbidden" and "cannot" in error.message:
        return f"'kedge kubectl auth can-i --list -n {namespace}' lists what you may do"
    if error.reason == "Unauthorized":
        return "'kedge up' writes the credentials of its cluster to the kubeconfig again"
    return ""


def _invalid(error: StatusError) -> str:
    details = error.details or {}
    kind, name = details.get("kind", ""), details.get("name", "")
    said = f'The {kind} "{name}" is invalid' if kind or name else "The request is invalid"
    if not error.causes:
        return said if kind or name else f"{said}: {error.message}"
    causes = list(dict.fromkeys(map(_cause, error.causes)))
    if len(causes) == 1:
        return f"{said}: {causes[0]}"
    return "\n".join([f"{said}: ", *(f"* {cause}" for cause in causes)])


def _cause(cause: StatusCause) -> str:
    return f"{cause.field}: {cause.message}"


def warnings_in(headers: Mapping[str, str]) -> Iterable[str]:
    """The texts of the Warning headers of an answer."""
    for text in _WARNING.findall(headers.get("warning", "")):
        plain = re.sub(r"\\(.)", r"\1", text)
        # Headers are read as Latin-1; the texts are UTF-8.
        yield plain.encode("latin-1", "replace").decode(errors="replace")


class WarningTransport:
    """Fulfils Transport by another one, and prints what the server warns of, each thing once."""

    def __init__(self, transport: Transport, out: TextIO | None = None) -> None:
        self._transport = transport
        self._out = out
        self._said: set[str] = set()

    async def send(self, call: Call) -> Reply:
        reply = await self._transport.send(call)
        self._listen(reply.headers)
        return reply

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._transport.stream(call) as stream:
            self._listen(stream.headers)
            yield stream

    async def close(self) -> None:
        await self._transport.close()

    def _listen(self, headers: Mapping[str, str]) -> None:
        for text in warnings_in(headers):
            if text not in self._said:
                self._said.add(text)
                print(f"Warning: {harmless(text)}", file=self._out or sys.stderr)
