"""The removal by server-side apply: fields that only the applier's last configuration named."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from kedge.apiserver.object_versions import ObjectVersions, UnconvertibleObject
from kedge.machinery import fields
from kedge.machinery.fields import Fields
from kedge.machinery.schema import Schema

_OWNED: Final = "failed add back owned items: failed to convert"
_DANGLING: Final = "failed add back dangling items: failed to convert"


class Removal(msgspec.Struct, frozen=True):
    """The removal of fields that an applier no longer names.

    Two things make this more than a difference of sets. First, removing an item of a list removes
    what is below it. Paths are therefore completed with their parents (`fields.named`), and items
    below which any manager owns a field are kept. Second, the fields without an owner may hold
    some that no manager ever owned, such as defaults inside of a dropped item. They may go with the
    item, but a default elsewhere must stay; so the final removal is limited to the intersection
    with what the applier itself had (`last`).

    A manager may have used another version. Its fields are looked for in the object in that
    version, and the removal happens in the version of the last configuration.
    """

    schema: Schema
    """That of the request's version."""
    api_version: str
    applied: Fields
    """The fields of the new configuration."""
    last: dict[str, Any]
    """The applier's entry in managedFields."""
    others: list[dict[str, Any]]
    """The entries of the other managers."""
    versions: ObjectVersions | None = None

    def of(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return the merged document without the fields; raises UnconvertibleObject."""
        version, last = self._version(self.last), self.last["fieldsV1"]
        if self._is_of_one_version() and not fields.difference(last, self.applied):
            return merged
        with _told("failed to convert merged object to last applied version"):
            whole = self._converted(merged, version)
        last = fields.named(self._schema(version), last)
        pruned = self._with_owned(whole, self._without(whole, last), version)
        with _told(f"{_DANGLING} pruned object to last applied version"):
            kept = self._named(self._converted(pruned, version))
        lost = fields.difference(self._named(whole), kept)
        result = self._without(whole, fields.intersection(lost, last))
        return self._converted(result, self.api_version)

    def _is_of_one_version(self) -> bool:
        """Whether nothing is converted, which may change an object by itself."""
        return all(self._version(each) == self.api_version for each in (self.last, *self.others))

    def _with_owned(
        self, whole: dict[str, Any], pruned: dict[str, Any], first: str
    ) -> dict[str, Any]:
        """Return the pruned document with what any manager owns, the version of the last
        configuration first: a conversion may need fields that were pruned."""
        owned = self._owned()
        for version in sorted({first, *owned}, key=lambda each: (each != first, each)):
            with _told(f"{_OWNED} merged object at version {version}"):
                whole = self._converted(whole, version)
            with _told(f"{_OWNED} pruned object at version {version}"):
                pruned = self._converted(pruned, version)
            named = fields.named(self._schema(version), owned.get(version, {}))
            kept = fields.union(self._named(pruned), named)
            pruned = self._without(whole, fields.difference(self._named(whole), kept))
        return pruned

    def _owned(self) -> dict[str, Fields]:
        """Return the fields that any manager owns from now on, by version."""
        sets = {self.api_version: [self.applied]}
        for entry in self.others:
            sets.setdefault(self._version(entry), []).append(entry["fieldsV1"])
        return {version: union_of_all(each) for version, each in sets.items()}

    def _version(self, entry: dict[str, Any]) -> str:
        version: str = self.api_version if self.versions is None else entry["apiVersion"]
        return version

    def _schema(self, version: str) -> Schema:
        if self.versions is None or version == self.api_version:
            return self.schema
        return self.versions.schema(version)

    def _converted(self, document: dict[str, Any], version: str) -> dict[str, Any]:
        return document if self.versions is None else self.versions.converted(document, version)

    def _named(self, document: dict[str, Any]) -> Fields:
        schema = self._schema_of(document)
        return fields.named(schema, fields.of(schema, document))

    def _without(self, document: dict[str, Any], gone: Fields) -> dict[str, Any]:
        """Return the document without the fields, but with its identity, which none of them is."""
        left = fields.remove(self._schema_of(document), document, gone)
        return left if isinstance(left, dict) else {}

    def _schema_of(self, document: dict[str, Any]) -> Schema:
        return self._schema(document.get("apiVersion", self.api_version))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Name the step that a conversion is for if it fails."""
    try:
        yield
    except UnconvertibleObject as error:
        raise UnconvertibleObject(f"{what}: {error}") from None


def union_of_all(sets: list[Fields]) -> Fields:
    """Return the union of the sets, merged in pairs: merging one after the other would copy the
    result each time."""
    while len(sets) > 1:
        sets = [
            fields.union(sets[i], sets[i + 1]) if i + 1 < len(sets) else sets[i]
            for i in range(0, len(sets), 2)
        ]
    return sets[0]
