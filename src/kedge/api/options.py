"""Options that travel in request bodies."""

from collections.abc import Sequence

from kedge.api.model import Model


class Preconditions(Model):
    """Conditions on the live object; the deletion fails unless they hold."""

    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(Model):
    """The options of a delete request."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions | None = None
    orphanDependents: bool | None = None
    propagationPolicy: str | None = None
    dryRun: Sequence[str] = ()
    ignoreStoreReadErrorWithClusterBreakingPotential: bool | None = None
