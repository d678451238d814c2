"""The tenant for whom the current task works: queues that tenants share take from each in turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_TENANT: Final[ContextVar[str]] = ContextVar("tenant", default="")


@contextmanager
def tenant(name: str) -> Iterator[None]:
    """Account the threads and writes that are asked for inside to a tenant."""
    token = _TENANT.set(name)
    try:
        yield
    finally:
        _TENANT.reset(token)


def current_tenant() -> str:
    """Return the tenant's name; empty for the server itself."""
    return _TENANT.get()
