"""How far a rollout is, in the words of kubectl; pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Fields = Mapping[str, Any]


class Progress(NamedTuple):
    """One look at a rollout."""

    message: str
    is_done: bool
    failure: str = ""
    """Why it will not be done; empty if it may be."""


def progress(document: Fields, revision: int = 0) -> Progress:
    """Return how far a workload is. A `revision` must be the one that is rolled out, if given."""
    kind = document["kind"]
    if kind == "Deployment":
        return _deployment(document, revision)
    if kind == "DaemonSet":
        return _daemon_set(document)
    return _stateful_set(document)


def _is_unobserved(document: Fields) -> bool:
    generation = document["metadata"].get("generation", 0)
    return bool(generation > (document.get("status") or {}).get("observedGeneration", 0))


def _deployment(document: Fields, revision: int) -> Progress:
    name, spec, status = _parts(document)
    if revision:
        annotations = document["metadata"].get("annotations") or {}
        current = annotations.get("deployment.kubernetes.io/revision", "")
        if current != str(revision):
            why = (
                f"desired revision ({revision}) is different from the running revision ({current})"
            )
            return Progress("", is_done=False, failure=why)
    if _is_unobserved(document):
        return Progress("Waiting for deployment spec update to be observed...", is_done=False)
    for each in status.get("conditions") or ():
        if each["type"] == "Progressing" and each.get("reason") == "ProgressDeadlineExceeded":
            why = f'deployment "{name}" exceeded its progress deadline'
            return Progress("", is_done=False, failure=why)
    wanted, updated = spec.get("replicas", 1), status.get("updatedReplicas", 0)
    total, available = status.get("replicas", 0), status.get("availableReplicas", 0)
    waiting = f'Waiting for deployment "{name}" rollout to finish:'
    if updated < wanted:
        return Progress(
            f"{waiting} {updated} out of {wanted} new replicas have been updated...", is_done=False
        )
    if total > updated:
        return Progress(
            f"{waiting} {total - updated} old replicas are pending termination...", is_done=False
        )
    if available < updated:
        return Progress(
            f"{waiting} {available} of {updated} updated replicas are available...", is_done=False
        )
    return Progress(f'deployment "{name}" successfully rolled out', is_done=True)


def _daemon_set(document: Fields) -> Progress:
    name, spec, status = _parts(document)
    if (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") != "RollingUpdate":
        why = "rollout status is only available for RollingUpdate strategy type"
        return Progress("", is_done=False, failure=why)
    if _is_unobserved(document):
        return Progress("Waiting for daemon set spec update to be observed...", is_done=False)
    wanted = status.get("desiredNumberScheduled", 0)
    updated, available = status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)
    waiting = f'Waiting for daemon set "{name}" rollout to finish:'
    if updated < wanted:
        return Progress(
            f"{waiting} {updated} out of {wanted} new pods have been updated...", is_done=False
        )
    if available < wanted:
        return Progress(
            f"{waiting} {available} of {wanted} updated pods are available...", is_done=False
        )
    return Progress(f'daemon set "{name}" successfully rolled out', is_done=True)


def _stateful_set(document: Fields) -> Progress:
    _, spec, status = _parts(document)
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        why = "rollout status is only available for RollingUpdate strategy type"
        return Progress("", is_done=False, failure=why)
    if _is_unobserved(document):
        return Progress("Waiting for statefulset spec update to be observed...", is_done=False)
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas", 0)
    if ready < wanted:
        return Progress(f"Waiting for {wanted - ready} pods to be ready...", is_done=False)
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    if partition:
        if updated < wanted - partition:
            message = (
                f"Waiting for partitioned roll out to finish: {updated} out of"
                f" {wanted - partition} new pods have been updated..."
            )
            return Progress(message, is_done=False)
        return Progress(
            f"partitioned roll out complete: {updated} new pods have been updated...", is_done=True
        )
    if status.get("updateRevision") != status.get("currentRevision"):
        message = (
            f"waiting for statefulset rolling update to complete {updated} pods at revision"
            f" {status.get('updateRevision')}..."
        )
        return Progress(message, is_done=False)
    current = status.get("currentReplicas", 0)
    revision = status.get("currentRevision")
    return Progress(
        f"statefulset rolling update complete {current} pods at revision {revision}...",
        is_done=True,
    )


def _parts(document: Fields) -> tuple[str, Fields, Fields]:
    return document["metadata"]["name"], document["spec"], document.get("status") or {}
