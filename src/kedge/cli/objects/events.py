"""`kedge events`: what happened in the cluster, the latest last."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

if TYPE_CHECKING:
    from datetime import datetime

    from kedge.api.resource import Resource
    from kedge.cli.objects.connection import ApiSession
    from kedge.cli.output.tables import ColumnPrinter

DESCRIPTION: Final = """\
Show events, the latest last, as 'kubectl events' does: of a namespace, of all, or of one object."""
EXAMPLES: Final = """\
  # The events of the current namespace, and of all
  kedge events
  kedge events -A

  # Those of one pod, and new ones until Ctrl-C
  kedge events --for pod/web -w

  # Only warnings
  kedge events --types Warning"""

_HEADING: Final = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    parser.add_argument(
        "--for", dest="subject", metavar="TYPE/NAME", help="only events of this object"
    )
    parser.add_argument(
        "--types", default="", metavar="TYPE,...", help="only these types: Normal, Warning"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="show new events until Ctrl-C")
    parser.add_argument("--no-headers", action="store_true", help="leave out the headings")
    parser.add_argument(
        "-o",
        "--output",
        type=client_flags.output("yaml", "json", "name", "jsonpath=TEMPLATE"),
        default="",
        metavar="FORMAT",
        help="yaml, json, name, or jsonpath=TEMPLATE",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit

    return visit(client_config(Settings(flags)), lambda there: show(there, flags))


async def show(there: "ApiSession", flags: Namespace) -> int:
    """Print the events, and new ones if that is asked for."""
    from kedge.cli.objects.connection import document_in, items_of
    from kedge.cli.output import outputs
    from kedge.cli.output.tables import ColumnPrinter
    from kedge.client.client import path_of

    [target] = await there.targets(["events.v1."])
    namespace = "" if flags.all_namespaces else there.namespace
    fields = await _fields(there, flags.subject)
    path = path_of(target.resource, namespace)
    reply = await there.client.send("GET", path, {"fieldSelector": fields})
    answer = document_in(reply.body)
    found = sort([each for each in items_of(answer, target.resource) if _is_of(each, flags.types)])
    if flags.output:
        objects = [(target.resource, each) for each in found]
        print(outputs.text_of(objects, flags.output, alone=False), end="")
        return 0
    printer = ColumnPrinter()
    if found:
        heading = [] if flags.no_headers else [_heading(everywhere=flags.all_namespaces)]
        _print(printer, [*heading, *_rows(found, flags)])
    elif not flags.watch:
        print(there.nothing([target], everywhere=flags.all_namespaces), file=sys.stderr)
    if flags.watch:
        version = answer["metadata"]["resourceVersion"]
        await _follow(there, flags, WatchStart(target.resource, fields, version), printer)
    return 0


class WatchStart(NamedTuple):
    """Which events to watch, and from where on."""

    resource: "Resource[Any]"
    fields: str
    version: str


async def _follow(
    there: "ApiSession", flags: Namespace, start: WatchStart, printer: "ColumnPrinter"
) -> None:
    """Print new events until Ctrl-C."""
    from kedge.cli.objects.connection import document_in
    from kedge.client.view import View

    namespace, version = "" if flags.all_namespaces else there.namespace, start.version
    view = View(start.resource, document_in)
    while True:
        async with there.client.watch_as(
            view, namespace, version=version, fields=start.fields
        ) as events:
            async for event in events:
                version = event.object["metadata"]["resourceVersion"]
                if event.type in ("ADDED", "MODIFIED") and _is_of(event.object, flags.types):
                    _print(printer, _rows([event.object], flags))


def _rows(events: Sequence[Mapping[str, Any]], flags: Namespace) -> list[list[str]]:
    from kedge.machinery.clock import SystemClock

    now = SystemClock().now()
    return [row(each, now, everywhere=flags.all_namespaces) for each in events]


def _print(printer: "ColumnPrinter", rows: Sequence[Sequence[str]]) -> None:
    from kedge.cli.output.tables import harmless

    for line in printer.lines([[*map(harmless, cells)] for cells in rows]):
        print(line, flush=True)


async def _fields(there: "ApiSession", subject: str | None) -> str:
    """Return the field selector for the events of one object."""
    if not subject:
        return ""
    from kedge.cli.failure import Failure

    [target, *_] = await there.targets([subject])
    if not target.name:
        raise Failure(f'--for "{subject}": name one object, as in pod/web')
    return f"involvedObject.kind={target.resource.kind},involvedObject.name={target.name}"


def _is_of(event: Mapping[str, Any], types: str) -> bool:
    wanted = [each.strip().lower() for each in types.split(",") if each.strip()]
    return not wanted or str(event.get("type", "")).lower() in wanted


def sort(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events with the latest last."""
    from kedge.cli.descriptions.parts import last_seen

    return sorted(events, key=lambda each: (last_seen(each) or "", each["metadata"]["name"]))


def _heading(*, everywhere: bool) -> list[str]:
    return [*(["NAMESPACE"] if everywhere else []), *_HEADING]


def row(event: Mapping[str, Any], now: "datetime", *, everywhere: bool) -> list[str]:
    """Return the cells of one event."""
    from kedge.cli.descriptions.parts import how_often

    subject = event.get("involvedObject") or {}
    return [
        *([event["metadata"].get("namespace", "")] if everywhere else []),
        how_often(event, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{subject.get('kind', '')}/{subject.get('name', '')}",
        str(event.get("message") or "").strip(),
    ]
