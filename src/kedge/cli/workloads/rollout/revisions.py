"""The revisions of a workload: ReplicaSets of a Deployment, ControllerRevisions of others; pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

Fields = Mapping[str, Any]

REVISION: Final = "deployment.kubernetes.io/revision"
CAUSE: Final = "kubernetes.io/change-cause"
_HASH: Final = "pod-template-hash"


class Revision(NamedTuple):
    """One earlier state of a workload."""

    number: int
    cause: str
    template: Fields
    """Its pod template."""


def revisions(workload: Fields, history: Iterable[Fields]) -> list[Revision]:
    """Return the revisions of a workload, the oldest first. `history` may have those of others."""
    uid = workload["metadata"]["uid"]
    own = [each for each in history if _is_owned(each, uid)]
    read = _of_replica_set if workload["kind"] == "Deployment" else _of_controller_revision
    return sorted(map(read, own), key=lambda each: each.number)


def target(found: list[Revision], number: int) -> Revision | None:
    """Return the revision to go back to: the numbered one, or with 0 the one before the current."""
    if not number:
        return found[-2] if len(found) > 1 else None
    return next((each for each in found if each.number == number), None)


def _is_owned(document: Fields, uid: str) -> bool:
    owners = document["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == uid for each in owners)


def _of_replica_set(document: Fields) -> Revision:
    annotations = document["metadata"].get("annotations") or {}
    template = dict(document["spec"]["template"])
    metadata = dict(template.get("metadata") or {})
    # The label that tells pods of revisions apart is not part of the Deployment's template.
    metadata["labels"] = {k: v for k, v in (metadata.get("labels") or {}).items() if k != _HASH}
    template["metadata"] = metadata
    number = annotations.get(REVISION, "0")
    return Revision(int(number) if number.isdecimal() else 0, annotations.get(CAUSE, ""), template)


def _of_controller_revision(document: Fields) -> Revision:
    annotations = document["metadata"].get("annotations") or {}
    data = document.get("data") or {}
    template = (data.get("spec") or {}).get("template") or {}
    template = {key: value for key, value in template.items() if key != "$patch"}
    return Revision(document.get("revision", 0), annotations.get(CAUSE, ""), template)
