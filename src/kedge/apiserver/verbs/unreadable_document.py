"""Errors about documents that are no object of the kind in the URL, in upstream's words."""

from typing import Any, Final

from kedge.api.resource import Resource
from kedge.machinery.errors import StatusError, bad_request

_QUOTED: Final = 30
"""Bytes of a body that an error quotes."""


class UnreadableDocument(StatusError):
    """A document that does not fit its kind: 400, or 422 as the result of a patch."""

    def __init__(self, message: str, why: str, restored: str = "") -> None:
        super().__init__(400, "BadRequest", message)
        self.why = why
        self.restored = restored
        """The reason after a strategic merge patch or an apply, whose result is not parsed again;
        empty if it has no other."""


class UntypedDocument(UnreadableDocument):
    """A document whose kind or apiVersion cannot be read."""

    def __init__(self, why: str, restored: str = "") -> None:
        super().__init__(why, why, restored)


def unreadable(resource: Resource[Any], why: str, restored: str = "") -> UnreadableDocument:
    return unreadable_as(resource, resource.version, resource.kind, why, restored)


def unreadable_as(
    resource: Resource[Any], version: str, kind: str, why: str, restored: str = ""
) -> UnreadableDocument:
    """Return the error about a document that names its own kind and version."""
    message = f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}'
    return UnreadableDocument(message, why, restored)


def unrecognized(resource: Resource[Any], why: str, data: bytes) -> StatusError:
    """Return the error about a body whose kind is not known."""
    return bad_request(
        f"the object provided is unrecognized (must be of type {resource.kind}): "
        f"{why} ({_summary(data)})"
    )


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    more = " ..." if len(data) > _QUOTED else ""
    start = data[:_QUOTED]
    return (start.decode(errors="replace") if start[:1] == b"{" else start.hex()) + more
