"""The quota usage of an object that is only counted."""

from collections.abc import Iterable
from typing import Any

from kedge.api.quota.measure import ONE, QuotaMeasure

_NO_SCOPES: frozenset[str] = frozenset()


def count_name(group: str, plural: str) -> str:
    """The name under which a quota bounds the number of objects of any resource."""
    return f"count/{plural}.{group}" if group else f"count/{plural}"


class CountQuotaMeter:
    """The meter of a resource whose quota counts objects only."""

    known = _NO_SCOPES
    looks = False

    def __init__(self, group: str, plural: str, alias: str = "") -> None:
        self._names = frozenset((count_name(group, plural), *filter(None, (alias,))))
        self._one = QuotaMeasure(dict.fromkeys(self._names, ONE), {})

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return self._names.intersection(hard)

    def measure(self, obj: Any) -> QuotaMeasure:
        return self._one

    def missing(self, obj: Any, names: Iterable[str]) -> str:
        return ""
