"""Collect the evidence about a pod, and print its diagnosis."""

from typing import Any

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.doctor.pod_diagnosis import (
    PodDiagnosis,
    PodEvidence,
    diagnose,
    diagnose_creation,
)
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.events import sort
from kedge.cli.output.printers import document
from kedge.cli.output.tables import harmless
from kedge.cli.pods.selection import pods_of
from kedge.machinery.errors import StatusError


async def show(there: ApiSession, word: str, output: str) -> int:
    """Print the diagnosis of a pod, or of the pods of a workload; 1 if one of them does not run."""
    if "/" not in word:
        found = [await there.get(PODS, word, there.namespace)]
    else:
        found = await pods_of(there, word)
    told = [(f"pod/{each['metadata']['name']}", await _diagnosis(there, each)) for each in found]
    if not told:
        told = [(word, await _without_pods(there, word))]
    # Several pods of a workload usually have one cause: print each once.
    unlike = list({(each.kind, each.cause): (name, each) for name, each in reversed(told)}.values())
    if output:
        items = [{"subject": name, "diagnosis": each} for name, each in told]
        print(document({"items": items}, output))
    else:
        print("\n\n".join(described(name, each) for name, each in reversed(unlike)))
    return 0 if all(each.is_healthy for _, each in told) else 1


async def _diagnosis(there: ApiSession, pod: dict[str, Any]) -> PodDiagnosis:
    node = pod["spec"].get("nodeName")
    events = await _events(there, f"involvedObject.uid={pod['metadata']['uid']}")
    return diagnose(PodEvidence(pod, events, await _node(there, node) if node else None))


async def _events(there: ApiSession, fields: str) -> list[dict[str, Any]]:
    [target] = await there.targets(["events.v1."])
    return sort(await there.list(target.resource, there.namespace, {"fieldSelector": fields}))


async def _node(there: ApiSession, name: str) -> dict[str, Any] | None:
    [target] = await there.targets([f"node/{name}"])
    try:
        return await there.get(target.resource, name, "")
    except StatusError as error:
        if error.code == 403:
            # Without the right to read nodes, the pod alone has to do.
            return {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        if error.code != 404:
            raise
        return None


async def _without_pods(there: ApiSession, word: str) -> PodDiagnosis:
    """Return why a workload has no pods: a Deployment's are made by its ReplicaSets."""
    [target] = await there.targets([word])
    names = [(target.resource.kind, target.name)]
    if target.resource.kind == "Deployment":
        [sets] = await there.targets(["replicasets.apps"])
        owned = await there.list(sets.resource, there.namespace)
        names += [
            ("ReplicaSet", each["metadata"]["name"])
            for each in owned
            for owner in each["metadata"].get("ownerReferences") or ()
            if (owner["kind"], owner["name"]) == ("Deployment", target.name)
        ]
    events = []
    for kind, name in names:
        fields = f"involvedObject.kind={kind},involvedObject.name={name},reason=FailedCreate"
        events += await _events(there, fields)
    return diagnose_creation(word, [str(each.get("message") or "") for each in sort(events)])


def described(name: str, found: PodDiagnosis) -> str:
    """Return the text for people."""
    lines = [f"{name}: {found.cause}"]
    for title, texts in (("evidence", found.evidence), ("do", found.remedies)):
        for number, text in enumerate(texts):
            head = f"{title}:" if not number else ""
            lines.append(f"  {head:10} {text}")
    return "\n".join(map(harmless, lines))
