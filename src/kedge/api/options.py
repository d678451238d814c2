"""Options that travel in request bodies."""

from collections.abc import Sequence

from kedge.api.model import Model


class Preconditions(Model):
    """What must be true of an object for it to be deleted."""

    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(Model):
    """How an object is to be deleted."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions | None = None
    orphanDependents: bool | None = None
    propagationPolicy: str | None = None
    dryRun: Sequence[str] = ()
    ignoreStoreReadErrorWithClusterBreakingPotential: bool | None = None
