"""An object in the versions of its kind, for comparisons that ask what a write means in each.

The comparisons are pure and run in threads; a webhook is asked on the event loop. So a comparison
that lacks a conversion ends with ConversionNeeded, the conversion is made, and the comparison
starts again with all that is known by then.
"""

from typing import Any, Protocol

import msgspec

from kedge.api.resource import Resource
from kedge.machinery.errors import StatusError
from kedge.machinery.merge import faults
from kedge.machinery.schema import Schema

_Key = tuple[bytes, str]


class UnconvertibleObject(ValueError):
    """An object that has no form in a version; the text is upstream's."""


class ObjectVersions(Protocol):
    """The versions of a kind."""

    def is_forgotten(self, api_version: str) -> bool:
        """Whether fields that a manager owns in a version are left off."""
        ...

    def schema(self, api_version: str) -> Schema:
        """Return the schema of a version that an object was converted to."""
        ...

    def converted(self, document: dict[str, Any], api_version: str) -> dict[str, Any]:
        """Return a document in a version; raises UnconvertibleObject and ConversionNeeded."""
        ...


class CustomVersions:
    """The versions of a custom kind and the conversions that one request has needed so far."""

    def __init__(self, resource: Resource[Any]) -> None:
        self._schemas = resource.version_schemas
        self._conversion = resource.conversion
        self._known: dict[_Key, dict[str, Any] | UnconvertibleObject] = {}

    def is_forgotten(self, api_version: str) -> bool:
        """Return False: a version that is gone is an error of the conversion."""
        return False

    def schema(self, api_version: str) -> Schema:
        return self._schemas[api_version]()

    def converted(self, document: dict[str, Any], api_version: str) -> dict[str, Any]:
        if document.get("apiVersion") == api_version:
            return document
        if api_version not in self._schemas:
            told = "request to convert CR to an invalid group/version"
            raise UnconvertibleObject(f"{told}: {api_version}")
        if self._conversion is None:
            return self._fitting({**document, "apiVersion": api_version})
        key = msgspec.json.encode(document, order="sorted"), api_version
        known = self._known.get(key)
        if known is None:
            raise ConversionNeeded(self, key)
        if isinstance(known, UnconvertibleObject):
            raise known
        return self._fitting(known)

    def _fitting(self, document: dict[str, Any]) -> dict[str, Any]:
        found = faults(self.schema(document["apiVersion"]), document)
        if found:
            raise UnconvertibleObject(found[0] if len(found) == 1 else _errors(found))
        return document

    async def learn(self, key: _Key) -> None:
        """Ask the webhook for a conversion, whose result or failure is known from then on."""
        assert self._conversion is not None
        try:
            document = await self._conversion.unpruned(*key)
        except StatusError as error:
            self._known[key] = UnconvertibleObject(error.message)
        else:
            self._known[key] = document


class ConversionNeeded(Exception):
    """A comparison that needs an object in another version."""

    def __init__(self, versions: CustomVersions, key: _Key) -> None:
        super().__init__(key[1])
        self._versions = versions
        self._key = key

    async def meet(self) -> None:
        """Make the conversion."""
        await self._versions.learn(self._key)


def custom_versions(resource: Resource[Any]) -> CustomVersions | None:
    """Return the versions of a custom kind; None if it has no other version."""
    return CustomVersions(resource) if len(resource.version_schemas) > 1 else None


def _errors(found: list[str]) -> str:
    return "\n  ".join(["errors:", *found])
