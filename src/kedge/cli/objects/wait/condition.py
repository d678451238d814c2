"""The conditions of `kedge wait --for`, and whether an object fulfils one; pure."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from kedge.cli.failure import Failure
from kedge.machinery.jsonpath import JSONPath, parse_path

WaitKind = Literal["condition", "delete", "create", "jsonpath"]


class WaitCondition(NamedTuple):
    """The state that is waited for."""

    kind: WaitKind
    name: str = ""
    """The type of the condition."""
    value: str = ""
    """The status of the condition, or the value at the path; empty for any value."""
    path: JSONPath | None = None

    def is_met(self, document: Mapping[str, Any] | None) -> bool:
        """Return whether an object is in the state; None is an object that does not exist."""
        if self.kind == "delete":
            return document is None
        if document is None:
            return False
        if self.kind == "create":
            return True
        if self.path is not None:
            found = self.path.find(document)
            if not self.value:
                return bool(found)
            return len(found) == 1 and _text(found[0]) == self.value
        return self._has_condition(document)

    def standing(self, document: Mapping[str, Any] | None) -> str:
        """Return how an object that is not in the state stands, for people."""
        if document is None:
            return "it does not exist"
        if self.kind == "delete":
            return _deletion(document["metadata"])
        if self.path is not None:
            found = [_text(each) for each in self.path.find(document)]
            return f"the value is {', '.join(found)}" if found else "it has no such value"
        for each in (document.get("status") or {}).get("conditions") or ():
            if each.get("type", "").lower() == self.name.lower():
                why = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
                return f"{each['type']} is {each['status']}" + (f" ({why})" if why else "")
        return f"it has no condition {self.name}"

    def _has_condition(self, document: Mapping[str, Any]) -> bool:
        status = document.get("status") or {}
        # A status of an earlier generation says nothing about the present one.
        generation = document["metadata"].get("generation", 0)
        for each in status.get("conditions") or ():
            if each.get("type", "").lower() != self.name.lower():
                continue
            observed = each.get("observedGeneration") or status.get("observedGeneration")
            if observed and observed < generation:
                return False
            return bool(each.get("status", "").lower() == self.value.lower())
        return False


def _deletion(metadata: Mapping[str, Any]) -> str:
    if not metadata.get("deletionTimestamp"):
        return "it is not being deleted"
    finalizers = ", ".join(metadata.get("finalizers") or ())
    return f"its finalizers are {finalizers}" if finalizers else "it is being deleted"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse(text: str) -> WaitCondition:
    """Read the value of --for; raises Failure."""
    if text in ("delete", "create"):
        return WaitCondition("delete" if text == "delete" else "create")
    kind, _, rest = text.partition("=")
    if kind == "condition" and rest:
        name, _, value = rest.partition("=")
        return WaitCondition("condition", name, value or "true")
    if kind == "jsonpath" and rest:
        return _parse_path(text, rest)
    raise Failure(
        f'unrecognized condition: "{text}": --for takes condition=TYPE[=STATUS], jsonpath=PATH'
        "[=VALUE], create or delete"
    )


def _parse_path(text: str, rest: str) -> WaitCondition:
    path, brace, value = rest.partition("}")
    if brace:
        path, value = path.removeprefix("{"), value.removeprefix("=")
    else:
        path, _, value = rest.partition("=")
    try:
        return WaitCondition("jsonpath", value=value.strip("'\""), path=parse_path(path))
    except ValueError as error:
        raise Failure(f'--for "{text}": {error}') from error
