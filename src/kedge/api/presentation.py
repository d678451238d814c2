"""Presentation: how clients abbreviate, select and show the objects of a kind."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kedge.api.model import Object

T = TypeVar("T", bound=Object)


class Age(msgspec.Struct, frozen=True):
    """A cell that shows the time since a moment: computed when the table is sent, not cached."""

    timestamp: str

    def around(self, age: str) -> str:
        """Return the text of the cell for a computed age."""
        return age


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of `kubectl get`."""

    name: str
    cell: Callable[[Any], object]
    """Returns the cell of an object: text, number, boolean, or an Age."""
    type: str = "string"
    format: str = ""
    priority: int = 0
    """1 shows the column only with `-o wide`."""
    description: str = ""


class FurtherColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A last column that only tables with certain objects have, so that all other tables are those
    of a kube-apiserver."""

    column: Column
    marker: bytes
    """Text in the JSON of each such object; others may have it by chance."""


def name_column() -> Column:
    return Column(name="Name", format="name", cell=lambda obj: obj.metadata.name)


def age_column() -> Column:
    return Column(name="Age", cell=lambda obj: Age(obj.metadata.creationTimestamp))


def created_column() -> Column:
    """Return the second column of kinds that declare no columns."""
    return Column(name="Created At", type="date", cell=lambda obj: obj.metadata.creationTimestamp)


class Presentation(msgspec.Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """Names, columns, field selectors and warnings of a kind for clients."""

    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    columns: Sequence[Column] = msgspec.field(
        default_factory=lambda: (name_column(), created_column())
    )
    further_column: FurtherColumn | None = None
    row_source: Callable[[], type[Any]] | None = None
    """Returns a Struct with just what `columns` and `row_conditions` read, if decoding it takes
    much less time than the whole object: a table of thousands of objects decodes each of them.
    Called with the first table."""
    row_conditions: Callable[[T], Sequence[Mapping[str, str]]] | None = None
    """Returns the conditions of an object's row, as kubectl reads them from a table."""
    fields: Mapping[str, Callable[[T], str]] = msgspec.field(default_factory=dict)
    """Field selectors beyond metadata.name and metadata.namespace."""
    field_source: type[Any] | None = None
    """A Struct with just what `fields` read, if decoding it takes much less time than the whole
    object: a watch with a field selector looks at every change."""
    deprecation: str = ""
    """The warning that every request for the kind gets."""
