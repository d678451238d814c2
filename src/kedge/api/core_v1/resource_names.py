"""Validation of resource names (cpu, pods, example.com/gpu) and of their amounts."""

from collections.abc import Iterator

from kedge.api import rules
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

CPU = "cpu"
MEMORY = "memory"
STORAGE = "storage"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"
REQUESTS_PREFIX = "requests."
LIMITS_PREFIX = "limits."

_COMPUTE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_COUNTED = frozenset(
    (
        PODS,
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_FOR_QUOTA = (
    _COUNTED
    | {*_COMPUTE, f"{REQUESTS_PREFIX}{STORAGE}"}
    | {f"{prefix}{name}" for prefix in (REQUESTS_PREFIX, LIMITS_PREFIX) for name in _COMPUTE}
)


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def is_native(name: str) -> bool:
    """Whether Kubernetes itself gives the name its meaning."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether the name is an extended resource, such as the devices of a device plugin."""
    if is_native(name) or name.startswith(REQUESTS_PREFIX):
        return False
    # A quota will want to count it under this longer name.
    return not names.qualified_name(REQUESTS_PREFIX + name)


def is_integer(name: str) -> bool:
    """Whether only whole amounts make sense."""
    return name in _COUNTED or is_extended(name)


def may_overcommit(name: str) -> bool:
    """Whether limits may exceed requests."""
    return is_native(name) and not is_hugepages(name)


def is_for_quota(name: str) -> bool:
    """Whether a quota knows how to count the name."""
    return name in _FOR_QUOTA or is_hugepages(name.removeprefix(REQUESTS_PREFIX))


def any_name(name: str) -> list[str]:
    """Return the errors of the name of any resource."""
    if found := names.qualified_name(name):
        return found
    if "/" in name or name == STORAGE or is_for_quota(name):
        return []
    return ["must be a standard resource type or fully qualified"]


def container_name(name: str) -> list[str]:
    """Return the errors of the name of a container's resource."""
    found = any_name(name)
    if "/" not in name:
        if name not in _COMPUTE and not is_hugepages(name):
            found.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        found.append("doesn't follow extended resource name standard")
    return found


def quota_name(name: str) -> list[str]:
    """Return the errors of the name of a quota's resource."""
    found = any_name(name)
    if "/" not in name and not is_for_quota(name):
        found.append("must be a standard resource for quota")
    return found


def validate_amount(name: str, amount: Quantity, path: str) -> Iterator[FieldError]:
    """Everything wrong with an amount of a resource."""
    if amount.nanos < 0:
        yield FieldError.invalid(path, amount, rules.NEGATIVE)
    if is_integer(name) and amount.milli() % 1000:
        yield FieldError.invalid(path, amount, "must be an integer")
