"""Follow and change rollouts."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import FIELD_MANAGER, ApiSession, document_in
from kedge.cli.objects.targets import ObjectTarget, examination, kind_of
from kedge.cli.output import outputs, printers
from kedge.cli.workloads.rollout.progress import progress
from kedge.cli.workloads.rollout.revisions import Revision, revisions, target
from kedge.client.client import MERGE_PATCH, STRATEGIC_PATCH, path_of
from kedge.client.view import View
from kedge.machinery.clock import SystemClock

KINDS: Final = ("Deployment", "DaemonSet", "StatefulSet")
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""The annotation with which kubectl restarts pods: a new value makes a new revision."""


async def rollout(there: ApiSession, flags: Namespace) -> int:
    """Do what the flags say for each named workload."""
    for found in await there.targets(flags.words):
        if found.resource.kind not in KINDS:
            raise Failure(
                f"a rollout is of a Deployment, DaemonSet or StatefulSet, and"
                f' "{kind_of(found.resource)}" is none'
            )
        if not found.name:
            plural = found.resource.plural
            raise Failure(f"name one of the {plural}, as in {plural}/NAME")
        await _act(there, flags, found)
    return 0


async def _act(there: ApiSession, flags: Namespace, found: ObjectTarget) -> None:
    match flags.action:
        case "status":
            await _status(there, flags, found)
        case "history":
            await _history(there, flags, found)
        case "restart":
            moment = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
            change = {"template": {"metadata": {"annotations": {RESTARTED_AT: moment}}}}
            await _patch(there, flags, found, change, "restarted")
        case "undo":
            await _undo(there, flags, found)
        case action:
            await _pause(there, flags, found, is_paused=action == "pause")


async def _status(there: ApiSession, flags: Namespace, found: ObjectTarget) -> None:
    try:
        async with asyncio.timeout(flags.timeout):
            await _follow(there, flags, found)
    except TimeoutError:
        helps = examination(found.resource, found.name, there.namespace)
        raise Failure(f"timed out waiting for the condition: {helps} shows why") from None


async def _follow(there: ApiSession, flags: Namespace, found: ObjectTarget) -> None:
    """Print each step of the rollout until it is done."""
    document = await there.get(found.resource, found.name, there.namespace)
    said = _told(document, flags, "")
    view = View(found.resource, document_in)
    while said is not None and flags.watch == "true":
        version = document["metadata"]["resourceVersion"]
        async with there.client.watch_as(
            view, there.namespace, version=version, fields=f"metadata.name={found.name}"
        ) as events:
            async for event in events:
                if event.type == "DELETED":
                    raise Failure(f"{kind_of(found.resource)}/{found.name} was deleted")
                if event.type == "BOOKMARK":
                    continue
                document = event.object
                said = _told(document, flags, said)
                if said is None:
                    return


def _told(document: Mapping[str, Any], flags: Namespace, before: str) -> str | None:
    """Print the step unless it was printed before; returns it, or None at the end."""
    now = progress(document, flags.revision)
    if now.failure:
        raise Failure(now.failure)
    if now.message != before:
        print(now.message, flush=True)
    return None if now.is_done else now.message


async def _history(there: ApiSession, flags: Namespace, found: ObjectTarget) -> None:
    known = await _revisions(there, found)
    title = f"{kind_of(found.resource)}/{found.name} "
    if flags.revision:
        one = target(known, flags.revision)
        if one is None:
            raise Failure(f"unable to find the specified revision: {flags.revision}")
        print(f"{title}with revision #{one.number}\n{outputs.yaml_text(one.template)}")
        return
    rows = [["REVISION", "CHANGE-CAUSE"]]
    rows += [[str(each.number), each.cause or "<none>"] for each in known]
    print(f"{title}\n{printers.table(rows)}\n")


async def _revisions(there: ApiSession, found: ObjectTarget) -> list[Revision]:
    workload = await there.get(found.resource, found.name, there.namespace)
    is_deployment = found.resource.kind == "Deployment"
    words = ["replicasets.apps" if is_deployment else "controllerrevisions.apps"]
    [history] = await there.targets(words)
    return revisions(workload, await there.list(history.resource, there.namespace))


async def _undo(there: ApiSession, flags: Namespace, found: ObjectTarget) -> None:
    known = await _revisions(there, found)
    one = target(known, flags.to_revision)
    if one is None and flags.to_revision:
        raise Failure(f"unable to find specified revision {flags.to_revision} in history")
    if one is None:
        raise Failure(
            f"no rollout history found for {found.resource.singular} {found.name!r}: it has had one"
            f" template, as 'kedge rollout history {found.resource.singular}/{found.name}' shows"
        )
    workload = await there.get(found.resource, found.name, there.namespace)
    if workload["spec"].get("paused"):
        raise Failure(
            f"you cannot rollback a paused deployment; resume it first with 'kedge rollout resume"
            f" deploy/{found.name}' and try again"
        )
    if _is_same(workload["spec"]["template"], one.template):
        print(
            f"{kind_of(found.resource)}/{found.name} skipped rollback (current template already"
            f" matches revision {one.number})"
        )
        return
    # The whole template is replaced: a merge would keep what the newer one has besides.
    workload["spec"]["template"] = one.template
    dry = {"dryRun": "All"} if flags.dry_run == "server" else {}
    await there.client.send(
        "PUT",
        path_of(found.resource, there.namespace, found.name),
        {**dry, "fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode(workload),
    )
    _say(flags, found, "rolled back")


def _is_same(template: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(_plain(template) == _plain(other))


def _plain(value: Any) -> Any:
    """Return a template without empty fields, which different writers leave out or not."""
    if isinstance(value, Mapping):
        parts = {key: _plain(each) for key, each in value.items()}
        return {key: each for key, each in parts.items() if each not in (None, {}, [])}
    return [_plain(each) for each in value] if isinstance(value, list) else value


async def _pause(
    there: ApiSession, flags: Namespace, found: ObjectTarget, *, is_paused: bool
) -> None:
    if found.resource.kind != "Deployment":
        raise Failure(f"{kind_of(found.resource)} does not support pausing: only a Deployment does")
    document = await there.get(found.resource, found.name, there.namespace)
    word = "paused" if is_paused else "resumed"
    if bool(document["spec"].get("paused")) == is_paused:
        already = "already paused" if is_paused else "is not paused"
        raise Failure(f'deployments.apps "{found.name}" {already}')
    await _patch(there, flags, found, {"paused": is_paused}, word, content=MERGE_PATCH)


async def _patch(
    there: ApiSession,
    flags: Namespace,
    found: ObjectTarget,
    spec: Mapping[str, Any],
    deed: str,
    *,
    content: str = STRATEGIC_PATCH,
) -> None:
    resource: Resource[Any] = found.resource
    dry = {"dryRun": "All"} if flags.dry_run == "server" else {}
    await there.client.send(
        "PATCH",
        path_of(resource, there.namespace, found.name),
        {**dry, "fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode({"spec": spec}),
        content=content,
    )
    _say(flags, found, deed)


def _say(flags: Namespace, found: ObjectTarget, deed: str) -> None:
    dry = " (server dry run)" if flags.dry_run == "server" else ""
    print(f"{kind_of(found.resource)}/{found.name} {deed}{dry}")
