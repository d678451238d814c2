"""Wait for objects, by watching them."""

import asyncio
import sys
from argparse import Namespace
from typing import Any

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession, document_in
from kedge.cli.objects.targets import ObjectTarget, examination, kind_of
from kedge.cli.objects.wait.condition import WaitCondition
from kedge.cli.output.tables import harmless
from kedge.cli.output.waiting import waiting
from kedge.client.client import path_of
from kedge.client.view import View
from kedge.machinery.errors import StatusError

Document = dict[str, Any]


class _WaitProgress:
    """The state that is waited for, and how the object stood when it was last seen."""

    def __init__(self, wanted: WaitCondition) -> None:
        self.wanted = wanted
        self.standing = "the server has not answered"

    def is_met(self, document: Document | None) -> bool:
        if self.wanted.is_met(document):
            return True
        self.standing = harmless(self.wanted.standing(document))
        return False


async def wait(there: ApiSession, flags: Namespace, wanted: WaitCondition) -> int:
    """Wait for each object in turn; 1 if the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + flags.timeout
    failed = False
    for resource, name, namespace in await _targets(there, flags, wanted):
        said = f"{kind_of(resource)}/{name}"
        seen = _WaitProgress(wanted)
        try:
            with waiting(lambda said=said, seen=seen: f"{said}: {seen.standing}"):  # type: ignore[misc]
                async with asyncio.timeout_at(deadline):
                    await _wait_for(there, ObjectTarget(resource, name), namespace, seen)
        except TimeoutError:
            failed = True
            print(
                f"error: timed out waiting for the condition on {said}: {seen.standing}\n"
                f"{examination(resource, name, namespace)} shows more",
                file=sys.stderr,
            )
        else:
            print(f"{said} {_deed(wanted)}", flush=True)
    return 1 if failed else 0


def _deed(wanted: WaitCondition) -> str:
    return {"delete": "deleted", "create": "created"}.get(wanted.kind, "condition met")


async def _targets(
    there: ApiSession, flags: Namespace, wanted: WaitCondition
) -> list[tuple[Any, str, str]]:
    """Return the objects to wait for, each with its namespace."""
    found: list[tuple[Any, str, str]] = []
    for resource, name in await there.targets(flags.words):
        namespace = "" if flags.all_namespaces else there.within(resource)
        if name:
            found.append((resource, name, namespace))
            continue
        if not (flags.all or flags.selector or flags.field_selector):
            raise Failure(
                "resource(s) were provided, but no name was specified: name them, or"
                " choose with -l, --field-selector or --all"
            )
        query = {"labelSelector": flags.selector, "fieldSelector": flags.field_selector}
        found += [
            (resource, each["metadata"]["name"], each["metadata"].get("namespace", ""))
            for each in await there.list(resource, namespace, query)
        ]
    if not found and wanted.kind != "delete":
        raise Failure("no matching resources found")
    return found


async def _wait_for(
    there: ApiSession, target: ObjectTarget, namespace: str, seen: _WaitProgress
) -> None:
    """Return when the object is in the state. A watch tells; it never asks twice a second."""
    resource, name = target
    wanted = seen.wanted
    view = View(resource, document_in)
    document = await _get(there, target, namespace)
    if document is None and wanted.kind not in ("create", "delete"):
        await there.get(resource, name, namespace)  # raises what the server says
    uid = document["metadata"]["uid"] if document else ""
    while not seen.is_met(document):
        listed = await there.client.send(
            "GET", path_of(resource, namespace), {"fieldSelector": f"metadata.name={name}"}
        )
        answer = document_in(listed.body)
        items = answer.get("items") or ()
        document = items[0] if items else None
        if wanted.kind == "delete" and document and document["metadata"]["uid"] != uid:
            return  # another object of the same name
        if seen.is_met(document):
            return
        version = answer["metadata"]["resourceVersion"]
        async with there.client.watch_as(
            view, namespace, version=version, fields=f"metadata.name={name}"
        ) as events:
            async for event in events:
                if event.type == "BOOKMARK":
                    continue
                document = None if event.type == "DELETED" else event.object
                if seen.is_met(document):
                    return


async def _get(there: ApiSession, target: ObjectTarget, namespace: str) -> Document | None:
    try:
        return await there.get(target.resource, target.name, namespace)
    except StatusError as error:
        if error.code != 404:
            raise
        return None
