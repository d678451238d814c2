"""Writes of the server itself, which must not keep it from starting."""

import logging
from collections.abc import Awaitable

from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)


async def unless_refused(writing: Awaitable[None]) -> None:
    """Await a write of the server's start, and log a refusal.

    An admission policy or webhook may refuse it. The server starts all the same, because a policy
    can be repaired only while the server runs.
    """
    try:
        await writing
    except StatusError as error:
        log.error("object of the server not written error=%s", error)
