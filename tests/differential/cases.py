"""Case: requests that are sent, in order, to two servers whose answers are compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"

NAMESPACE: Final = "differential"


@dataclass(frozen=True)
class Request:
    """One request. Texts may have `<version>`, `<uid>` and `<continue>` of the latest object."""

    method: str
    path: str
    query: str = ""
    body: Any = None
    """A document; None sends no body, and a text is sent as it is."""
    content_type: str = JSON
    accept: str = JSON


@dataclass(frozen=True)
class Case:
    """Requests, and what they try."""

    kind: str
    field: str
    """The path of the field that differs from a valid object, without indexes; may be empty."""
    action: str
    """The verb or the name of the sequence."""
    requests: tuple[Request, ...]
    watch: Request | None = None
    """A watch that is open while the requests are sent."""


@dataclass(frozen=True)
class Kind:
    """A kind that a server publishes, with the schema of its objects."""

    name: str
    api_version: str
    plural: str
    path: str
    """The path of the collection, in the namespace of the cases."""
    namespaced: bool
    schema: Mapping[str, Any]
    subresources: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def label(self) -> str:
        """The name with the group, and the version if it is not the stable one."""
        version = self.api_version.rpartition("/")[2]
        name = f"{self.name}.{self.group}" if self.group else self.name
        return name if version == "v1" else f"{name}/{version}"


@dataclass(frozen=True)
class Answer:
    """The answer of one server to one request."""

    code: int
    document: Any
    warnings: tuple[str, ...] = ()
    content_type: str = ""


@dataclass
class Memory:
    """Values of earlier answers that later requests of a case refer to."""

    values: dict[str, str] = field(
        default_factory=lambda: {"version": "", "uid": "", "continue": ""}
    )

    def keep(self, document: Any) -> None:
        """Remember the identity of the object, or the place of the list."""
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if not isinstance(metadata, dict) or document.get("kind") == "Status":
            return
        self.values["continue"] = metadata.get("continue") or ""
        for name, key in (("version", "resourceVersion"), ("uid", "uid")):
            if metadata.get(key):
                self.values[name] = metadata[key]

    def fill(self, value: Any) -> Any:
        """Return the value with the remembered ones in the place of their names."""
        if isinstance(value, str):
            for name, kept in self.values.items():
                value = value.replace(f"<{name}>", kept)
            return value
        if isinstance(value, dict):
            return {key: self.fill(each) for key, each in value.items()}
        return [self.fill(each) for each in value] if isinstance(value, list) else value


def folded(path: Iterator[str | int] | tuple[str | int, ...]) -> str:
    """Return the path of a field as text, without indexes."""
    text = ""
    for part in path:
        text += "[]" if isinstance(part, int) else f".{part}" if text else part
    return text
