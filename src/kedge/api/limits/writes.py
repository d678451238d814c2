"""Which writes LimitRanges have a say in."""

from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object

_WRITES: Final = ("CREATE", "UPDATE")


def concerns(operation: str, subresource: str, obj: Object | None, old: Object | None) -> bool:
    """Return whether a write is one that LimitRanges have a say in."""
    if operation not in _WRITES:
        return False
    if old is not None and old.metadata.deletionTimestamp:
        return False
    if isinstance(obj, Pod):
        return not subresource if operation == "CREATE" else subresource == "resize"
    return not subresource
