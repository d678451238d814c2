"""`kedge create` and `kedge apply`: write the objects of manifests."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import FIELD_MANAGER, ApiSession, document_in
from kedge.cli.objects.manifests import Manifest
from kedge.cli.output import outputs
from kedge.cli.output.outputs import Found
from kedge.client.client import APPLY_PATCH, path_of
from kedge.client.transport import Reply
from kedge.machinery.errors import StatusError

CONFLICT_ADVICE = """\
Another field manager set the fields above to other values. Choose one:
* take them over: run the command again with --force-conflicts
* leave them alone: take them out of your manifest
* agree: give them the values that they have"""


class WriteOptions(NamedTuple):
    """How manifests are to be written."""

    manifests: Sequence[Manifest]
    dry_run: bool = False
    output: str = ""
    force: bool = False
    """Whether fields are taken from those who set them before."""
    by_the_book: bool = False
    """Whether to say what kubectl says after `--server-side`."""


class WriteResult(NamedTuple):
    """The result of writing a manifest."""

    found: Found
    deed: str


Write = Callable[[ApiSession, WriteOptions, Manifest], Awaitable[WriteResult]]


async def create(connection: ApiSession, asked: WriteOptions) -> int:
    return await _each(connection, asked, _create, "creating")


async def apply(connection: ApiSession, asked: WriteOptions) -> int:
    return await _each(connection, asked, _apply, "applying patch to")


async def _each(connection: ApiSession, asked: WriteOptions, write: Write, doing: str) -> int:
    """Write one after the other; what cannot be written keeps the others from nothing."""
    failed = False
    for manifest in asked.manifests:
        try:
            print(_said(await write(connection, asked, manifest), asked), end="", flush=True)
        except StatusError as error:
            failed = True
            print(complaint(error, f'{doing} "{manifest.source}"'), file=sys.stderr)
            if error.reason == "Conflict" and write is _apply:
                print(CONFLICT_ADVICE, file=sys.stderr)
        except Failure as failure:
            failed = True
            print(failure.said, file=sys.stderr)
    return 1 if failed else 0


def _said(written: WriteResult, asked: WriteOptions) -> str:
    if asked.output:
        said = outputs.text_of([written.found], asked.output, alone=True)
        several = asked.output == "yaml" and len(asked.manifests) > 1
        return f"---\n{said}" if several else said
    dry = " (server dry run)" if asked.dry_run else ""
    return f"{outputs.name_text(written.found)} {written.deed}{dry}\n"


async def _create(connection: ApiSession, asked: WriteOptions, manifest: Manifest) -> WriteResult:
    resource, namespace, document = await _prepared(connection, manifest)
    reply = await connection.client.send(
        "POST",
        path_of(resource, namespace),
        {**_options(asked), "fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode(document),
    )
    return WriteResult((resource, document_in(reply.body)), "created")


async def _apply(connection: ApiSession, asked: WriteOptions, manifest: Manifest) -> WriteResult:
    if not manifest.name:
        raise Failure(
            f"{manifest.source}: {manifest.kind} has no name, without which nothing can be applied:"
            " give it one, or use 'kedge create'"
        )
    resource, namespace, document = await _prepared(connection, manifest)
    path = path_of(resource, namespace, manifest.name)
    before = None if asked.by_the_book else await _existing(connection, path)
    try:
        reply = await _patch(connection, asked, path, document, force=asked.force)
    except StatusError as error:
        if not _only_with_ourselves(error):
            raise
        # The conflict is with `kedge create`, which is the same user's tool: take over its fields.
        reply = await _patch(connection, asked, path, document, force=True)
    after = document_in(reply.body)
    created = reply.status == 201
    deed = "serverside-applied" if asked.by_the_book else _change(created, before, after)
    return WriteResult((resource, after), deed)


async def _patch(
    connection: ApiSession, asked: WriteOptions, path: str, document: dict[str, Any], *, force: bool
) -> Reply:
    return await connection.client.send(
        "PATCH",
        path,
        {**_options(asked), "fieldManager": FIELD_MANAGER, "force": "true" if force else ""},
        body=msgspec.json.encode(document),
        content=APPLY_PATCH,
    )


def _only_with_ourselves(error: StatusError) -> bool:
    """Whether all the fields in conflict were set by this client, though in another manner."""
    ours = f'conflict with "{FIELD_MANAGER}"'
    whole = [cause.message.partition(" using ")[0] for cause in error.causes]
    return error.reason == "Conflict" and bool(whole) and all(each == ours for each in whole)


def _change(created: bool, before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """Return the effect of an apply on the object, as kubectl words it."""
    if created:
        return "created"
    same = before is not None and _wanted(before) == _wanted(after)
    return "unchanged" if same else "configured"


def _wanted(document: dict[str, Any]) -> dict[str, Any]:
    """The object without what changes by itself: its status, its version, who set which field."""
    shown = outputs.without_managers(document)
    shown["metadata"].pop("resourceVersion", None)
    shown.pop("status", None)
    return shown


def _options(asked: WriteOptions) -> dict[str, str]:
    return {"dryRun": "All" if asked.dry_run else "", "fieldValidation": "Strict"}


async def _prepared(
    connection: ApiSession, manifest: Manifest
) -> tuple[Resource[Any], str, dict[str, Any]]:
    """Return the manifest's resource, its namespace and the document to send."""
    resource = await connection.resource_of(manifest)
    namespace = connection.namespace_of(manifest, resource)
    metadata = dict(manifest.document.get("metadata") or {})
    if namespace:
        metadata["namespace"] = namespace
    return resource, namespace, {**manifest.document, "metadata": metadata}


async def _existing(connection: ApiSession, path: str) -> dict[str, Any] | None:
    """The object as it is now; None if it is not there or not ours to read."""
    try:
        return document_in((await connection.client.send("GET", path)).body)
    except StatusError as error:
        if error.code not in (403, 404):
            raise
        return None
