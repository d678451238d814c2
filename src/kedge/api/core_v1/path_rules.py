"""Validation of paths inside containers and volumes: none may lead outside."""

from collections.abc import Iterator

from kedge.machinery.errors import FieldError


def no_backsteps(field: str, path: str) -> Iterator[FieldError]:
    """No element of the path is `..`."""
    if ".." in path.split("/"):
        yield FieldError.invalid(field, path, "must not contain '..'")


def descending(field: str, path: str) -> Iterator[FieldError]:
    """A relative path that stays below where it starts."""
    if path.startswith("/"):
        yield FieldError.invalid(field, path, "must be a relative path")
    yield from no_backsteps(field, path)


def unreserved(field: str, path: str) -> Iterator[FieldError]:
    """A descending path whose first name does not begin with two dots: those are the node's."""
    yield from descending(field, path)
    if path.startswith("..") and not path.startswith("../"):
        yield FieldError.invalid(field, path, "must not start with '..'")


def mode(field: str, bits: int | None) -> Iterator[FieldError]:
    """Permissions of a file, if given."""
    if bits is not None and not 0 <= bits <= 0o777:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        yield FieldError.invalid(field, bits, why)
