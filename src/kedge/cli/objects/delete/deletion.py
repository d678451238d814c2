"""Delete objects, and wait until they are gone."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import ApiSession, document_in
from kedge.cli.objects.manifests import Manifest
from kedge.cli.objects.targets import kind_of
from kedge.cli.output.waiting import waiting
from kedge.client.client import DeletionOptions, path_of
from kedge.client.view import outlines
from kedge.machinery.errors import StatusError

FORCED = (
    "Immediate deletion does not wait for confirmation that the running resource has been"
    " terminated. The resource may continue to run on the cluster indefinitely."
)


class DeleteRequest(NamedTuple):
    """The objects to delete, and how."""

    words: Sequence[str] = ()
    manifests: Sequence[Manifest] = ()
    labels: str = ""
    fields: str = ""
    all: bool = False
    everywhere: bool = False
    grace: int | None = None
    """Seconds to end in; None leaves it to the object."""
    force: bool = False
    cascade: str = "background"
    wait: bool = True
    timeout: float | None = None
    """Seconds to wait; None for as long as it takes."""
    ignore_missing: bool = False
    dry_run: bool = False
    output: str = ""

    @property
    def selects(self) -> bool:
        return bool(self.labels or self.fields)

    @property
    def patient(self) -> bool:
        return self.wait and not self.dry_run

    def options(self) -> DeletionOptions:
        # Only --force skips the confirmation of the node; kubectl too sends 1 for 0 without it.
        grace = 0 if self.force else 1 if self.grace == 0 else self.grace
        return DeletionOptions(
            propagation_policy=self.cascade.capitalize(),
            grace_period_seconds=grace,
            dry_run=("All",) if self.dry_run else (),
        )


class DeletionTarget(NamedTuple):
    """One object that is to go."""

    resource: Resource[Any]
    name: str
    namespace: str
    source: str = ""
    """The file that names it, if one does."""


def check(asked: DeleteRequest) -> None:
    """Fail if it is not clear what is to be deleted."""
    if asked.all and asked.selects:
        raise Failure("cannot set --all and a selector at the same time")
    if asked.manifests and (asked.words or asked.all or asked.selects):
        raise Failure("-f cannot be combined with a type, a name, --all or a selector")
    if not asked.manifests and not asked.words:
        raise Failure("name the objects to delete: TYPE NAME, TYPE/NAME, or a file with -f")
    if asked.force and asked.grace:
        raise Failure("--force and --grace-period greater than 0 cannot be specified together")


async def delete(connection: ApiSession, asked: DeleteRequest) -> int:
    """Delete what was asked for; 1 if some of it could not be deleted."""
    if asked.force:
        print(f"Warning: {FORCED}", file=sys.stderr)
    going: list[tuple[DeletionTarget, str]] = []
    count, failed = 0, False
    async for doomed in _doomed(connection, asked):
        count += 1
        try:
            uid = await _delete(connection, asked, doomed)
        except StatusError as error:
            if error.code != 404 or not (asked.ignore_missing or asked.all or asked.selects):
                failed = True
                deed = f'deleting "{doomed.source}"' if doomed.source else ""
                print(complaint(error, deed), file=sys.stderr)
            continue
        print(deletion_message(doomed, asked), flush=True)
        going.append((doomed, uid))
    if not count:
        print("No resources found", file=sys.stderr)
    if asked.patient and going:
        await _outlive(connection, going, asked.timeout)
    return 1 if failed else 0


async def _doomed(connection: ApiSession, asked: DeleteRequest) -> AsyncIterator[DeletionTarget]:
    for manifest in asked.manifests:
        resource = await connection.resource_of(manifest)
        namespace = connection.namespace_of(manifest, resource)
        yield DeletionTarget(resource, manifest.name, namespace, manifest.source)
    for target in await connection.targets(asked.words) if asked.words else ():
        if target.name:
            if asked.selects or asked.all or asked.everywhere:
                raise Failure("name cannot be provided when a selector or --all is specified")
            yield DeletionTarget(target.resource, target.name, connection.within(target.resource))
        elif not (asked.all or asked.selects):
            raise Failure("resource(s) were provided, but no name was specified")
        else:
            for doomed in await _selected(connection, asked, target.resource):
                yield doomed


async def _selected(
    connection: ApiSession, asked: DeleteRequest, resource: Resource[Any]
) -> list[DeletionTarget]:
    namespace = "" if asked.everywhere else connection.within(resource)
    listing = await connection.client.list_as(
        outlines(resource), namespace, labels=asked.labels, fields=asked.fields
    )
    return [
        DeletionTarget(resource, one.metadata.name, one.metadata.namespace) for one in listing.items
    ]


async def _delete(connection: ApiSession, asked: DeleteRequest, doomed: DeletionTarget) -> str:
    """Delete an object; returns its uid, which tells it from a later object of the same name."""
    reply = await connection.client.send(
        "DELETE",
        path_of(doomed.resource, doomed.namespace, doomed.name),
        body=asked.options().encoded(),
    )
    answer = document_in(reply.body)
    if answer.get("kind") == "Status":
        return str((answer.get("details") or {}).get("uid") or "")
    return str(answer["metadata"].get("uid") or "")


def deletion_message(doomed: DeletionTarget, asked: DeleteRequest) -> str:
    kind = kind_of(doomed.resource)
    if asked.output == "name":
        return f"{kind}/{doomed.name}"
    deed = "force deleted" if asked.options().grace_period_seconds == 0 else "deleted"
    where = f" from {doomed.namespace} namespace" if doomed.namespace else ""
    dry = " (server dry run)" if asked.dry_run else ""
    return f'{kind} "{doomed.name}" {deed}{where}{dry}'


async def _outlive(
    connection: ApiSession, going: Sequence[tuple[DeletionTarget, str]], seconds: float | None
) -> None:
    """Return when all of them are gone."""
    left = [doomed for doomed, _ in going]
    try:
        with waiting(lambda: f"the deletion of {_names(left)}"):
            async with asyncio.timeout(seconds):
                for doomed, uid in going:
                    await _gone(connection, doomed, uid)
                    left.remove(doomed)
    except TimeoutError:
        first = f"{kind_of(left[0].resource)}/{left[0].name}"
        raise Failure(
            f"timed out waiting for the deletion of {_names(left)}: 'kedge describe {first}' shows"
            " its finalizers and events"
        ) from None


def _names(targets: Sequence[DeletionTarget]) -> str:
    return ", ".join(f"{kind_of(each.resource)}/{each.name}" for each in targets)


async def _gone(connection: ApiSession, doomed: DeletionTarget, uid: str) -> None:
    view = outlines(doomed.resource)
    fields = f"metadata.name={doomed.name}"
    while True:
        listing = await connection.client.list_as(view, doomed.namespace, fields=fields)
        if not any(uid in ("", one.metadata.uid) for one in listing.items):
            return
        async with connection.client.watch_as(
            view, doomed.namespace, version=listing.version, fields=fields
        ) as events:
            async for event in events:
                if event.type == "DELETED":
                    return
