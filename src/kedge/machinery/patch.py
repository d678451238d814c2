"""JSON patches (RFC 6902) and merge patches (RFC 7396) that leave the given document as it is."""

import copy
import json
import re
from typing import Any

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20
"""Bytes that the copies of one JSON patch may add up to."""
MAX_SHIFTED = 1 << 27
"""How many list items all operations of one JSON patch together may shift.

Inserting or removing an item shifts all later items: ten thousand operations at the front of a
list of a million items would take most of a minute."""


class PatchError(Exception):
    """A patch that could not be applied. `code` is the HTTP status of the response."""

    code = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PatchMalformed(PatchError):
    """The patch is malformed."""

    code = 400


class PatchTooLong(PatchError):
    """The patch has too many operations, or copies too much."""

    code = 413


class PatchFailed(PatchError):
    """The patch does not fit the document, or one of its tests failed."""

    code = 422


class PatchTestFailed(PatchFailed):
    """A test of the patch found another value."""


def apply_json(document: Any, operations: Any) -> Any:
    """The document after all operations. As in Kubernetes, `replace` may name a missing map key."""
    _check_form(operations)
    draft = _CopiedDocument(document)
    for operation in operations:
        kind = operation.get("op")
        verb = _DEEDS.get(kind) if isinstance(kind, str) else None
        if verb is None:
            raise PatchFailed(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        verb(draft, operation)
    return draft.root


def apply_merge(document: Any, patch: Any) -> Any:
    """The document with the merge patch laid over it; null removes a member."""
    if not isinstance(patch, dict):
        raise PatchMalformed("Invalid JSON Patch")
    return _merged(document, patch)


def diff_merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that leads from `a` to `b`, as far as b holds no nulls."""
    patch: dict[str, Any] = {name: None for name in a if name not in b}
    for name, value in b.items():
        if name not in a:
            patch[name] = value
        elif isinstance(value, dict) and isinstance(a[name], dict):
            if inner := diff_merge(a[name], value):
                patch[name] = inner
        elif not same(a[name], value):
            patch[name] = value
    return patch


def same(a: Any, b: Any) -> bool:
    """Equality as JSON has it: true is not 1, and 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[name]) for name, value in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def printed(value: Any) -> str:
    """A JSON value as Go's %v prints it, for messages that quote one."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{name}:{printed(value[name])}' for name in sorted(value))}]"
        case list():
            return f"[{' '.join(map(printed, value))}]"
        case float():
            return f"{value:g}" if value.is_integer() else repr(value)
        case _:
            return str(value)


def _check_form(operations: Any) -> None:
    if not isinstance(operations, list):
        raise PatchMalformed("a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchTooLong(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
    if not all(isinstance(operation, dict) for operation in operations):
        raise PatchMalformed("every operation of a JSON patch must be an object")


def _merged(document: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


class _CopiedDocument:
    """A copy-on-write document: only the maps and lists on the path of a write are copied."""

    def __init__(self, document: Any) -> None:
        self.root = document
        # Held by identity; keeping the copies alive keeps their identities from being reused.
        self._copies: dict[int, Any] = {}
        self._copied = 0
        self._shifted = 0

    def pay_for(self, copied: Any) -> None:
        """Count what is copied: a few copies of copies would fill any memory."""
        self._copied += len(json.dumps(copied))
        if self._copied > MAX_COPIED:
            raise PatchTooLong(f"the copies in a JSON patch add up to more than {MAX_COPIED} bytes")

    def insert(self, pointer: str, value: Any) -> None:
        """Insert the value at the pointer."""
        container, token = self.writable(pointer)
        if isinstance(container, dict):
            container[token] = value
        elif token == "-":
            container.append(value)
        else:
            index = _index(token, len(container) + 1)
            self._shift(len(container) - index)
            container.insert(index, value)

    def cut(self, pointer: str) -> Any:
        """Remove the value at the pointer."""
        container, token = self.writable(pointer)
        if isinstance(container, list):
            index = _index(token, len(container))
            self._shift(len(container) - index)
            return container.pop(index)
        if token not in container:
            raise _NoPlace(f"Unable to remove nonexistent key: {token}: missing value")
        return container.pop(token)

    def _shift(self, places: int) -> None:
        self._shifted += places
        if self._shifted > MAX_SHIFTED:
            raise PatchTooLong(
                f"a JSON patch may not shift items by more than {MAX_SHIFTED} places"
            )

    def parent(self, pointer: str) -> tuple[Any, str]:
        """Return the container that the pointer leads to, for reading, and the last token."""
        *tokens, last = _tokens(pointer)
        node = self.root
        for token in tokens:
            node = _member(node, token)
        return _container(node), last

    def writable(self, pointer: str) -> tuple[Any, str]:
        """The same, for writing."""
        *tokens, last = _tokens(pointer)
        node = self.root = self._own(self.root)
        for token in tokens:
            child = self._own(_member(node, token))
            node[token if isinstance(node, dict) else _index(token, len(node))] = child
            node = child
        return node, last

    def _own(self, container: Any) -> Any:
        if id(container) in self._copies:
            return container
        fresh = copy.copy(_container(container))
        self._copies[id(fresh)] = fresh
        return fresh


def _add(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", "add")
    try:
        draft.insert(path, operation.get("value"))
    except _NoContainer:
        raise _missing("add", f'path: "{path}"') from None
    except _NoPlace as e:
        raise PatchFailed(f"error in add for path: '{path}': {e}") from None


def _remove(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", "remove")
    try:
        draft.cut(path)
    except _NoContainer:
        raise _missing("remove", f'path: "{path}"') from None
    except _NoPlace as e:
        raise PatchFailed(f"error in remove for path: '{path}': {e}") from None


def _replace(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", "replace")
    value = operation.get("value")
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchFailed("replace operation value must be object or array")
        draft.root = value
        return
    try:
        container, token = draft.writable(path)
        container[token if isinstance(container, dict) else _index(token, len(container))] = value
    except _NoContainer:
        raise _missing("replace", f"path: {path}") from None
    except _NoPlace:
        raise _missing("replace", f"key: {path}") from None


def _move(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    origin = _text(operation, "from", "move")
    path = _text(operation, "path", "move")
    try:
        value = draft.cut(origin)
    except _NoContainer:
        raise _missing("move", f"from path: {origin}") from None
    except _NoPlace as e:
        key = _tokens(origin)[-1]  # upstream names only that
        raise PatchFailed(f"error in move for path: '{key}': {e}") from None
    _put(draft, "move", path, value)


def _copy(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    origin = _text(operation, "from", "copy")
    path = _text(operation, "path", "copy")
    try:
        value = _read(*draft.parent(origin))
    except _NoContainer:
        raise _missing("copy", f"from path: {origin}") from None
    except _NoPlace as e:
        raise PatchFailed(f"error in copy for from: '{origin}': {e}") from None
    draft.pay_for(value)
    _put(draft, "copy", path, copy.deepcopy(value))


def _test(draft: _CopiedDocument, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", "test")
    try:
        value = draft.root if path == "" else _read(*draft.parent(path))
    except _NoContainer:
        raise PatchFailed(
            f"test operation does not apply: is missing path: {path}: missing value"
        ) from None
    except _NoPlace as e:
        raise PatchFailed(f"error in test for path: '{path}': {e}") from None
    if not same(value, operation.get("value")):
        raise PatchTestFailed(f"testing value {path} failed: test failed")


_DEEDS = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


class _NoContainer(Exception):
    """The path leads through something that holds nothing."""


class _NoPlace(Exception):
    """The container has no such place."""


def _put(draft: _CopiedDocument, verb: str, path: str, value: Any) -> None:
    try:
        draft.insert(path, value)
    except _NoContainer:
        raise _missing(verb, f"destination path: {path}") from None
    except _NoPlace as e:
        raise PatchFailed(f"error in {verb} for path: '{path}': {e}") from None


def _missing(verb: str, what: str) -> PatchFailed:
    return PatchFailed(f"{verb} operation does not apply: doc is missing {what}: missing value")


def _text(operation: dict[str, Any], field: str, verb: str) -> str:
    text = operation.get(field)
    if not isinstance(text, str):
        raise PatchFailed(f"{verb} operation failed to decode {field}: missing value")
    return text


def _tokens(pointer: str) -> list[str]:
    if "/" not in pointer:
        raise _NoContainer
    tokens = pointer.split("/")[1:]
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]


def _container(node: Any) -> Any:
    if not isinstance(node, dict | list):
        raise _NoContainer
    return node


def _member(node: Any, token: str) -> Any:
    try:
        return _read(_container(node), token)
    except _NoPlace:
        raise _NoContainer from None


def _read(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        return container.get(token)
    return container[_index(token, len(container))]


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def _index(token: str, length: int) -> int:
    if not _INTEGER.fullmatch(token):
        raise _NoPlace(f'strconv.Atoi: parsing "{token}": invalid syntax')
    index = int(token)
    # Counting from the end is no part of the RFC, but Kubernetes accepts it.
    place = index + length if index < 0 else index
    if not 0 <= place < length:
        raise _NoPlace(f"Unable to access invalid index: {index}: invalid index referenced")
    return place
