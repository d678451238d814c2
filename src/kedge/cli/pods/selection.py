"""Which pod a word such as `deploy/web` or `svc/web` means."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import kind_of

Pod = dict[str, Any]

_PHASES: Final = {"Pending": 1, "Unknown": 2, "Running": 3}


async def pods_of(there: ApiSession, word: str) -> list[Pod]:
    """Return the pods that `TYPE/NAME` selects, the most useful first."""
    [target] = await there.targets([word])
    document = await there.get(target.resource, target.name, there.namespace)
    if target.resource.kind == "Pod":
        return [document]
    labels = selector(document)
    if not labels:
        raise Failure(
            f"{kind_of(target.resource)}/{target.name} selects no pods: name a pod, or a workload"
            " such as deploy/web"
        )
    found = await there.list(PODS, there.namespace, {"labelSelector": labels})
    return sorted(found, key=usefulness, reverse=True)


async def first_pod(there: ApiSession, word: str) -> Pod:
    """Return one pod of a workload or Service; prints which one if there are several."""
    found = await pods_of(there, word)
    if not found:
        raise Failure(f"{word} has no pods: 'kedge describe {word}' may say why")
    if len(found) > 1:
        chosen = found[0]["metadata"]["name"]
        print(f"Found {len(found)} pods, using pod/{chosen}", file=sys.stderr)
    return found[0]


def selector(document: Mapping[str, Any]) -> str:
    """Return the label selector of an object's pods as text; empty if it has none."""
    spec = document.get("spec") or {}
    given = spec.get("selector") or {}
    if document["kind"] in ("Service", "ReplicationController"):
        return ",".join(f"{key}={value}" for key, value in sorted(given.items()))
    labels = [f"{key}={value}" for key, value in sorted((given.get("matchLabels") or {}).items())]
    return ",".join([*labels, *map(_expression, given.get("matchExpressions") or ())])


def _expression(each: Mapping[str, Any]) -> str:
    key, values = each["key"], ",".join(each.get("values") or ())
    match each["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case _:
            return f"!{key}"


def usefulness(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key by which pods that run, are ready and run for longest come last."""
    status = pod.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    counts = [each["restartCount"] for each in status.get("containerStatuses") or ()]
    return (
        "deletionTimestamp" not in pod["metadata"],
        bool(pod["spec"].get("nodeName")),
        _PHASES.get(status.get("phase", ""), 0),
        conditions.get("Ready") == "True",
        -max(counts, default=0),
        # Older pods first; texts of times sort as times do.
        [-ord(each) for each in pod["metadata"].get("creationTimestamp", "")],
    )
