"""Apply proposals, one after the other, and tell what the server made of each."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod import pod as core_pod
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import FIELD_MANAGER, ApiSession, document_in
from kedge.cli.objects.targets import kind_of
from kedge.cli.usage.recommend.proposal import SizeProposal, containers, declared_text, how
from kedge.client.client import STRATEGIC_PATCH, path_of
from kedge.machinery.errors import StatusError

_NO_RIGHT: Final = "cannot create resource"
"""In the message of a request that is refused for lack of a right, not by admission."""


async def apply(
    connection: ApiSession, proposals: Sequence[SizeProposal], *, everywhere: bool, dry_run: bool
) -> int:
    """Patch every workload. A refused one is reported and the next one follows; returns 1 then."""
    failed = False
    for each in proposals:
        title = f"{kind_of(each.workload.target.resource)}/{each.workload.target.name}"
        if everywhere:
            title += f" in {each.workload.namespace}"
        if not each.is_changeable:
            print(f"{title} skipped: {how(each.workload.target, each.class_)}")
            continue
        try:
            after = await _patched(connection, each, dry_run=dry_run)
        except StatusError as error:
            failed = True
            print(complaint(error, f"changing {title}"), file=sys.stderr)
            continue
        changed = list(changes(each, after))
        dry = " (server dry run)" if dry_run else ""
        print(f"{title} {'patched' if changed else 'patched (no change)'}{dry}", flush=True)
        for line in changed:
            print(f"  {line}")
    return 1 if failed else 0


async def _patched(
    connection: ApiSession, proposal: SizeProposal, *, dry_run: bool
) -> dict[str, Any]:
    """Return the workload after the patch. It is tried first, with one of its pods: LimitRange,
    quota and policies refuse pods, which a workload would otherwise only report in its events."""
    is_pod = proposal.workload.target.resource.kind == "Pod"
    tried = await _send(connection, proposal, dry_run=True)
    if not is_pod:
        await _try_pod(connection, proposal, tried)
    return tried if dry_run else await _send(connection, proposal, dry_run=False)


async def _send(connection: ApiSession, proposal: SizeProposal, *, dry_run: bool) -> dict[str, Any]:
    workload = proposal.workload
    resource = workload.target.resource
    sub = "resize" if resource.kind == "Pod" else ""
    reply = await connection.client.send(
        "PATCH",
        path_of(resource, workload.namespace, workload.target.name, sub),
        {
            "fieldManager": FIELD_MANAGER,
            "fieldValidation": "Strict",
            "dryRun": "All" if dry_run else "",
        },
        body=msgspec.json.encode(proposal.patch()),
        content=STRATEGIC_PATCH,
    )
    return document_in(reply.body)


async def _try_pod(
    connection: ApiSession, proposal: SizeProposal, document: Mapping[str, Any]
) -> None:
    """Let the server check a pod of the new template, without creating it."""
    workload = proposal.workload
    try:
        await connection.client.send(
            "POST",
            path_of(core_pod.RESOURCE, workload.namespace),
            {"fieldManager": FIELD_MANAGER, "dryRun": "All"},
            body=msgspec.json.encode(trial_pod(workload.target.name, document)),
        )
    except StatusError as error:
        if error.code != 403 or _NO_RIGHT not in error.message:
            raise


def trial_pod(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as the workload would make it; claims of its own are empty directories."""
    spec = document["spec"]
    template = (spec.get("jobTemplate") or {}).get("spec", spec)["template"]
    claims = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates") or ()]
    volumes = [
        *(template["spec"].get("volumes") or ()),
        *({"name": each, "emptyDir": {}} for each in claims),
    ]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
        },
        "spec": {**template["spec"], "volumes": volumes},
    }


def changes(proposal: SizeProposal, after: Mapping[str, Any]) -> Iterator[str]:
    """Return the sizes that differ, as the server has them now: admission may have changed them."""
    now = containers(proposal.workload.target, after)
    for name, before in proposal.declared.items():
        for resource in proposal.sizes.get(name, {}):
            texts = [
                f"{sort[:-1]} {old} -> {new}"
                for sort in ("requests", "limits")
                for old in [declared_text(before.resources, sort, resource)]
                for new in [declared_text(now[name].resources, sort, resource)]
                if old != new
            ]
            if texts:
                yield f"{name} {resource}: {', '.join(texts)}"
