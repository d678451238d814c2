"""Paths of the downward API: parsed once, resolved against a pod by the node.

Kubernetes' own paths are fields, perhaps with a key (`metadata.labels['app']`). Kedge also takes
selectors: `spec.containers[?(@.name=="web")].resources.limits.cpu` for an amount of a container,
`resources.limits.cpu` for one of a container that is known otherwise.
"""

import re
from typing import Final

import msgspec

from kedge.machinery.short_cache import short_cache

FULL_FORM: Final = (
    'selector must have the form spec.containers[?(@.name=="NAME")]'
    ".resources.{limits,requests}.RESOURCE"
)
PARTIAL_FORM: Final = "selector must have the form resources.{limits,requests}.RESOURCE"
OWNER_FORM: Final = (
    "selector must have the form metadata.ownerReferences[?(@.controller==true)]"
    ".{apiVersion,kind,name,uid}"
)


class MalformedFieldPath(ValueError):
    """A text that begins like a selector but is malformed; the message shows the right form."""


class FieldPath(msgspec.Struct, frozen=True):
    """A field of the pod, as in Kubernetes; any text is such a path."""

    name: str
    written_key: str | None = None
    """The text between the quotes, if the path ends in a subscript."""

    @classmethod
    def keyed(cls, name: str, key: str) -> "FieldPath":
        """The path to one key of a map. No path leads to keys with backslashes."""
        return cls(name, re.sub(r"[\[\]']", r"\\\g<0>", key))

    @classmethod
    def parsed(cls, text: str) -> "FieldPath":
        """The text as Kubernetes reads it: the first bracket with a quote begins the key."""
        if text.endswith("']"):
            name, bracket, key = text[:-2].partition("['")
            if name and bracket:
                return cls(name, key)
        return cls(text)

    @property
    def key(self) -> str | None:
        """The key that is meant; where the escapes are wrong, what is written."""
        if self.written_key is None or "\\" not in self.written_key:
            return self.written_key
        return _unescaped(self.written_key) if self.escapes else self.written_key

    @property
    def escapes(self) -> bool:
        """Whether the key is written with escapes, and all that need one have it."""
        written = self.written_key or ""
        return "\\" in written and _ESCAPED(written) is not None

    def __str__(self) -> str:
        return self.name if self.written_key is None else f"{self.name}['{self.written_key}']"


class ContainerResourcePath(msgspec.Struct, frozen=True):
    """A request or limit of a container."""

    bound: str
    """`limits` or `requests`."""
    resource: str
    container: str = ""
    """Its name; empty where the selector does not say."""
    among: str = "containers"
    """Or `initContainers`."""

    def __str__(self) -> str:
        partial = f"resources.{self.bound}.{self.resource}"
        if not self.container:
            return partial
        return f'spec.{self.among}[?(@.name=="{self.container}")].{partial}'


class OwnerPath(msgspec.Struct, frozen=True):
    """An attribute of the pod's controller."""

    attribute: str

    def __str__(self) -> str:
        return f"metadata.ownerReferences[?(@.controller==true)].{self.attribute}"


_ESCAPED: Final = re.compile(r"(?:[^\\\[\]']|\\[\[\]'])*").fullmatch
_RESOURCES: Final = (
    r"resources\.(?P<bound>limits|requests)\."
    r"(?P<resource>[-\w]+|(?:[-\w]|\\?\.)+/(?:[-\w]|\\?\.)+)"
)
_NAME: Final = r"""(?:"(?P<name>[^"]+)"|'(?P<other>[^']+)')"""
_FULL: Final = re.compile(
    rf"\.?spec\.(?P<among>containers|initContainers)\[ *\? *\( *@\.name *== *{_NAME} *\) *\]"
    rf"\.{_RESOURCES}",
    re.ASCII,
).fullmatch
_PARTIAL: Final = re.compile(rf"\.?{_RESOURCES}", re.ASCII).fullmatch
_OWNER: Final = re.compile(
    r"\.?metadata\.ownerReferences\[ *\? *\( *@\.controller *== *true *\) *\]"
    r"\.(?P<attribute>apiVersion|kind|name|uid)"
).fullmatch
# A quote behind the bracket makes it a subscript, and of those Kubernetes has words of its own.
_LIKE_FULL: Final = re.compile(r"\.?spec\.(?:containers|initContainers)\[(?!')").match
_LIKE_OWNER: Final = re.compile(r"\.?metadata\.ownerReferences\[(?!')").match


@short_cache(4096)
def parse(text: str) -> FieldPath | ContainerResourcePath | OwnerPath:
    """Return the path of a `fieldRef`; raise MalformedFieldPath for a malformed selector."""
    if _LIKE_FULL(text):
        found = _FULL(text)
        if found is None:
            raise MalformedFieldPath(FULL_FORM)
        return _amount(found)
    if _LIKE_OWNER(text):
        found = _OWNER(text)
        if found is None:
            raise MalformedFieldPath(OWNER_FORM)
        return OwnerPath(found["attribute"])
    return FieldPath.parsed(text)


@short_cache(4096)
def parse_partial(text: str) -> ContainerResourcePath:
    """Return the selector of a `containerFieldRef`; raise MalformedFieldPath if malformed."""
    found = _PARTIAL(text)
    if found is None:
        raise MalformedFieldPath(PARTIAL_FORM)
    return _amount(found)


def _amount(found: re.Match[str]) -> ContainerResourcePath:
    parts = found.groupdict()
    return ContainerResourcePath(
        bound=parts["bound"],
        resource=parts["resource"].replace("\\.", "."),
        container=parts.get("name") or parts.get("other") or "",
        among=parts.get("among", "containers"),
    )


def _unescaped(key: str) -> str:
    return re.sub(r"\\([\[\]'])", r"\1", key)
