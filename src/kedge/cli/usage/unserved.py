"""Answers of servers that do not serve the APIs of kedge."""

from collections.abc import Awaitable

from kedge.cli.failure import Failure
from kedge.machinery.errors import StatusError


def is_unserved(error: StatusError) -> bool:
    """Whether a server knows no such API, rather than no such object. For a group that it does not
    serve, a kube-apiserver answers with a line of text instead of a Status."""
    return error.code == 404 and not (error.details or {}).get("name")


async def of_kedge(work: Awaitable[int]) -> int:
    """Do what needs usage in windows; raises a Failure if the server has none."""
    try:
        return await work
    except StatusError as error:
        if not is_unserved(error):
            raise
        raise Failure(
            "this server has no usage in windows, because it is not kedge's: run 'kedge"
            " metrics-server' beside it, or use 'kubectl top' with another metrics-server"
        ) from error
