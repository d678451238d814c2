"""Show objects as tables or documents, once or as they change."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import ApiSession, document_in, items_of
from kedge.cli.objects.targets import ObjectTarget, kind_of
from kedge.cli.output import outputs, tables
from kedge.cli.output.outputs import Found
from kedge.cli.output.tables import ColumnPrinter, TableOptions
from kedge.client.client import path_of
from kedge.client.view import View
from kedge.machinery.errors import StatusError, not_found


class GetOptions(NamedTuple):
    """The objects to show, and how."""

    words: Sequence[str]
    """TYPE, names, as they were given."""
    everywhere: bool = False
    labels: str = ""
    fields: str = ""
    output: str = ""
    watch: bool = False
    headings: bool = True
    show_labels: bool = False
    ignore_missing: bool = False

    @property
    def as_table(self) -> bool:
        return self.output in ("", "wide")

    @property
    def selectors(self) -> dict[str, str]:
        return {"labelSelector": self.labels, "fieldSelector": self.fields}


async def show(connection: ApiSession, asked: GetOptions) -> int:
    """Print what was asked for; 1 if some of it could not be had."""
    found = await connection.targets(asked.words)
    if any(target.name for target in found):
        _check_by_name(asked)
    if asked.watch:
        return await _follow(connection, asked, found)
    complaints: list[str] = []
    if asked.as_table:
        await _show_tables(connection, asked, found, complaints)
    else:
        await _show_documents(connection, asked, found, complaints)
    for said in complaints:
        print(said, file=sys.stderr)
    return 1 if complaints else 0


def _check_by_name(asked: GetOptions) -> None:
    if asked.everywhere:
        raise Failure("a resource cannot be retrieved by name across all namespaces")
    if asked.labels or asked.fields:
        raise Failure("name cannot be provided when a selector is specified")


def namespace_of(connection: ApiSession, asked: GetOptions, resource: Resource[Any]) -> str:
    return "" if asked.everywhere else connection.within(resource)


async def fetch(
    connection: ApiSession, asked: GetOptions, target: ObjectTarget, *, accept: str = outputs.JSON
) -> dict[str, Any]:
    """One object, or a list of objects, as the server sends it."""
    path = path_of(target.resource, namespace_of(connection, asked, target.resource), target.name)
    query = {} if target.name else asked.selectors
    return document_in((await connection.client.send("GET", path, query, accept=accept)).body)


async def _each(
    connection: ApiSession,
    asked: GetOptions,
    found: Sequence[ObjectTarget],
    complaints: list[str],
    accept: str,
) -> AsyncIterator[tuple[ObjectTarget, dict[str, Any]]]:
    """Yield each target with its document; failures are appended to `complaints`."""
    for target in found:
        try:
            yield target, await fetch(connection, asked, target, accept=accept)
        except StatusError as error:
            if not (error.code == 404 and target.name and asked.ignore_missing):
                complaints.append(complaint(error))


# Tables.


async def _show_tables(
    connection: ApiSession, asked: GetOptions, found: Sequence[ObjectTarget], complaints: list[str]
) -> None:
    answers = [
        answer async for answer in _each(connection, asked, found, complaints, tables.ACCEPT)
    ]
    several = len({target.resource for target in found}) > 1
    groups = [
        lines
        for resource, group in groupby(answers, lambda answer: answer[0].resource)
        if (lines := list(_table(resource, [answer for _, answer in group], asked, several)))
    ]
    if groups:
        print("\n\n".join("\n".join(lines) for lines in groups))
    elif not complaints and not asked.ignore_missing:
        print(connection.nothing(found, everywhere=asked.everywhere), file=sys.stderr)


def _table(
    resource: Resource[Any], answers: Sequence[Mapping[str, Any]], asked: GetOptions, several: bool
) -> Iterator[str]:
    """The lines of the table that several answers about one resource make."""
    look = _look(resource, asked, several=several)
    portion = [row for answer in answers for row in portion_of(answer, look, headings=False)]
    if portion and asked.headings:
        portion = [tables.heading(_as_table(answers[0])["columnDefinitions"], look), *portion]
    yield from ColumnPrinter().lines(portion)


def portion_of(answer: Mapping[str, Any], look: TableOptions, *, headings: bool) -> list[list[str]]:
    """The rows of an answer, with the heading if there are any."""
    table = _as_table(answer)
    columns = table["columnDefinitions"]
    rows = list(tables.rows(table, columns, look))
    return [tables.heading(columns, look), *rows] if rows and headings else rows


def _as_table(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer, or a table made of it if the server does not make any."""
    if answer.get("kind") == "Table":
        return answer
    return tables.made_up((answer["items"] or ()) if "items" in answer else [answer])


def _look(resource: Resource[Any], asked: GetOptions, *, several: bool) -> TableOptions:
    return TableOptions(
        wide=asked.output == "wide",
        namespaces=asked.everywhere and resource.namespaced,
        labels=asked.show_labels,
        prefix=f"{kind_of(resource)}/" if several else "",
    )


# Documents.


async def _show_documents(
    connection: ApiSession, asked: GetOptions, found: Sequence[ObjectTarget], complaints: list[str]
) -> None:
    objects: list[Found] = []
    async for target, answer in _each(connection, asked, found, complaints, outputs.JSON):
        listed = [answer] if target.name else items_of(answer, target.resource)
        objects += [(target.resource, document) for document in listed]
    alone = len(found) == 1 and bool(found[0].name)
    if alone and not objects:
        return
    print(outputs.text_of(objects, asked.output, alone=alone), end="")


# Watching.


async def _follow(connection: ApiSession, asked: GetOptions, found: Sequence[ObjectTarget]) -> int:
    """Print the objects, then every change, until Ctrl-C."""
    if len(found) != 1:
        raise Failure("you may only specify a single resource type or object to watch")
    (target,) = found
    asked = asked._replace(fields=f"metadata.name={target.name}" if target.name else asked.fields)
    printed = _Rows(target.resource, asked) if asked.as_table else _Documents(target, asked)
    first = await fetch(connection, asked, ObjectTarget(target.resource), accept=printed.accept)
    if target.name and not (first.get("rows") or first.get("items")):
        raise not_found(target.resource.group, target.resource.plural, target.name)
    printed.show(first)
    version = first["metadata"]["resourceVersion"]
    view = View(target.resource, document_in, printed.accept)
    while True:
        # The server ends every watch after a while; from where it ended the next one goes on.
        async with connection.client.watch_as(
            view,
            namespace_of(connection, asked, target.resource),
            version=version,
            labels=asked.labels,
            fields=asked.fields,
        ) as events:
            async for event in events:
                version = version_in(event.object) or version
                if event.type != "BOOKMARK":
                    printed.show(event.object)


def version_in(document: Mapping[str, Any]) -> str:
    """From where a watch goes on after this object, or after this table of one."""
    for row in document.get("rows") or ():
        if version := (row.get("object") or {}).get("metadata", {}).get("resourceVersion"):
            return str(version)
    return str((document.get("metadata") or {}).get("resourceVersion") or "")


class _Rows:
    """Prints changes as further rows of one table."""

    accept = tables.ACCEPT

    def __init__(self, resource: Resource[Any], asked: GetOptions) -> None:
        self._look = _look(resource, asked, several=False)
        self._headings = asked.headings
        self._columns: Sequence[Any] = ()
        self._lines = ColumnPrinter()

    def show(self, answer: Mapping[str, Any]) -> None:
        table = _as_table(answer)
        # Only the first table of a watch says what its columns are.
        self._columns = table.get("columnDefinitions") or self._columns
        portion = list(tables.rows(table, self._columns, self._look))
        if portion and self._headings:
            portion = [tables.heading(self._columns, self._look), *portion]
            self._headings = False
        for line in self._lines.lines(portion):
            print(line, flush=True)


class _Documents:
    """Prints changes as documents."""

    accept = outputs.JSON

    def __init__(self, target: ObjectTarget, asked: GetOptions) -> None:
        self._resource = target.resource
        self._output = asked.output
        self._begun = False

    def show(self, answer: Mapping[str, Any]) -> None:
        listed = items_of(answer, self._resource) if "items" in answer else [dict(answer)]
        for document in listed:
            if self._begun and self._output == "yaml":
                print("---")
            self._begun = True
            found = [(self._resource, document)]
            print(outputs.text_of(found, self._output, alone=True), end="", flush=True)
