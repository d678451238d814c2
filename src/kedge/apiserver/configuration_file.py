"""Configuration files of the server: YAML documents with apiVersion and kind."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

LARGEST_FILE: Final = 1 << 20
T = TypeVar("T")


class _Configuration(Protocol):
    """A document that names its version and kind."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=_Configuration)

_unknown = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `\$\.?([^`]*)`)?")


class ConfigurationFileError(Exception):
    """The file cannot be used; the message says why."""


def read(path: Path, parse: Callable[[Any], T]) -> T:
    """Return the parsed document of a file; `parse` raises ValueError for a bad one."""
    try:
        return parse(document(path))
    except OSError as error:
        why = error.strerror or str(error)
        name = error.filename or path
        raise ConfigurationFileError(f"cannot read '{name}': {why}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigurationFileError(f"configuration '{path}': {error}") from error


def document(path: Path) -> Any:
    """Return the document in a file of bounded size."""
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"'{path}' is larger than {LARGEST_FILE} bytes")
    # Not above: most servers read no such file, and the YAML library takes long to import.
    from kedge.machinery import yaml_text

    found, repeated = yaml_text.read_strictly(data)
    if repeated:
        raise ValueError(repeated[0])
    return found


def check_kind(api_version: str, kind: str, wanted: str, versions: Sequence[str]) -> None:
    """Raise ValueError unless a document is of that kind, in one of these versions."""
    if kind != wanted or api_version not in versions:
        found = f"{api_version} {kind}".strip() or "document without kind"
        raise ValueError(f"{found} is not {wanted} of {' or '.join(versions)}")


def parsed(document: Any, as_type: type[C], kind: str, versions: Sequence[str]) -> C:
    """Return the configuration in a document; ValueError if it is another one or malformed."""
    if document is None:
        raise ValueError("empty config data")
    found = strictly(document, as_type)
    check_kind(found.api_version, found.kind, kind, versions)
    return found


def strictly(document: Any, kind: type[T]) -> T:
    """Return the document as that type; ValueError in Kubernetes' words for an unknown field."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        unknown = _unknown.search(str(error))
        if unknown is None:
            raise
        path = ".".join(filter(None, (unknown[2], unknown[1])))
        raise ValueError(f'strict decoding error: unknown field "{path}"') from None


def raise_errors(errors: Iterable[object]) -> None:
    """Raise ValueError with all errors, as Kubernetes joins them; do nothing without any."""
    texts = list(dict.fromkeys(map(str, errors)))
    if texts:
        raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
