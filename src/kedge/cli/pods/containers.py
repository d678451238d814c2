"""Which pod and which container a command is about."""

import sys
from collections.abc import Sequence
from typing import Any

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession

DEFAULT = "kubectl.kubernetes.io/default-container"
"""The annotation with which a pod says which of its containers people usually mean."""

Pod = dict[str, Any]


async def find(there: ApiSession, word: str) -> Pod:
    """The pod that `NAME` or `pod/NAME` means, or one of those of `TYPE/NAME`."""
    kind, slash, name = word.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        from kedge.cli.pods.selection import first_pod

        return await first_pod(there, word)
    return await there.get(PODS, name, there.namespace)


def every(pod: Pod) -> list[str]:
    """The names of all containers, in the order in which they start."""
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [each["name"] for kind in kinds for each in pod["spec"].get(kind) or ()]


def usual(pod: Pod) -> str:
    """Return the default container of a pod; print a note if the pod has others."""
    names = every(pod)
    chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT, "")
    if chosen not in names:
        chosen = pod["spec"]["containers"][0]["name"]
    if len(names) > 1 and DEFAULT not in (pod["metadata"].get("annotations") or {}):
        print(f'Defaulted container "{chosen}" out of: {", ".join(_listed(pod))}', file=sys.stderr)
    return str(chosen)


def _listed(pod: Pod) -> Sequence[str]:
    notes = {"containers": "", "initContainers": " (init)", "ephemeralContainers": " (ephem)"}
    return [
        f"{each['name']}{note}"
        for kind, note in notes.items()
        for each in pod["spec"].get(kind) or ()
    ]


def check(pod: Pod, name: str) -> str:
    """The name, if the pod has such a container."""
    if name not in every(pod):
        known = ", ".join(_listed(pod))
        where = f"pod {pod['metadata']['name']} out of: {known}"
        raise Failure(f"container {name} is not valid for {where}")
    return name
