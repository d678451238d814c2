"""Print the requests that a cluster for tests has answered."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Final

from kedge.api.testing.recorded_request import RecordedRequest
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.client.controls import ControlsClient, NotForTests

HEADS: Final = ("NUMBER", "TIME", "CLIENT", "VERB", "RESOURCE", "OBJECT", "CODE", "SECONDS", "NOTE")


def showing(flags: Namespace) -> Callable[[ApiSession], Awaitable[int]]:
    """Return the work of the command."""
    selection = {
        "verbs": flags.verbs,
        "resource": flags.resource,
        "namespace": flags.namespace,
        "name": flags.name,
        "user": flags.user,
        "service_account": flags.service_account,
        "user_agent": flags.user_agent,
        "since": flags.since,
    }

    async def deed(there: ApiSession) -> int:
        try:
            found = await ControlsClient(there.client).requests(**selection)
        except NotForTests as error:
            raise Failure(str(error)) from None
        if flags.output:
            print(printers.document(found, flags.output))
        elif found.items:
            print(printers.table([HEADS, *map(cells, found.items)]))
        else:
            print("There are no such requests.")
        return 0

    return deed


def cells(request: RecordedRequest) -> tuple[str, ...]:
    """Return the cells of a request in the table."""
    return (
        str(request.number),
        request.time[11:23],
        request.user_agent.partition("/")[0] or request.user,
        request.verb,
        "/".join(filter(None, (request.resource, request.subresource))) or request.path,
        "/".join(filter(None, (request.namespace, request.name))) or "<none>",
        str(request.code),
        f"{request.seconds:.3f}",
        note(request),
    )


def note(request: RecordedRequest) -> str:
    """Return what is remarkable about a request, in a word or two."""
    words = (
        request.fault,
        "unchanged" if request.unchanged else "",
        "dry run" if request.dry_run else "",
    )
    return ", ".join(filter(None, words))
