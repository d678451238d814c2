"""Namespace: a room for names, deleted together with all that is in it."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.model import Model, Object, Time, keyed
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import ALL_VERBS, STATUS, Resource, Subresource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"
ACTIVE = "Active"
TERMINATING = "Terminating"


class NamespaceSpec(Model):
    """The finalizers that keep the namespace."""

    finalizers: Sequence[str] = ()
    """Names of those who empty the namespace; changed only through the finalize subresource."""


class NamespaceCondition(Model):
    """One aspect of the namespace's end."""

    __required__ = ("type", "status")

    lastTransitionTime: Time = ""
    """When the status last changed."""
    message: str = ""
    """Why, for people."""
    reason: str = ""
    """Why, as one word."""
    status: str = ""
    """True, False or Unknown."""
    type: str = ""
    """The type of the condition, for instance NamespaceContentRemaining."""


class NamespaceStatus(Model):
    """Where in its life the namespace is."""

    conditions: Annotated[Sequence[NamespaceCondition], keyed("type")] = ()
    """The progress of the deletion."""
    phase: str = ""
    """Active or Terminating."""


class Namespace(Object):
    """A room for names: most objects live in one and go when it goes."""

    spec: NamespaceSpec = NamespaceSpec()
    """The conditions that delay the deletion of the namespace."""
    status: NamespaceStatus = NamespaceStatus()
    """The observed state."""


def default(obj: Namespace) -> Namespace:
    if not obj.status.phase:
        obj = replace(obj, status=replace(obj.status, phase=ACTIVE))
    if not obj.metadata.name or obj.metadata.labels.get(NAME_LABEL) == obj.metadata.name:
        return obj
    labels = {**obj.metadata.labels, NAME_LABEL: obj.metadata.name}
    return replace(obj, metadata=replace(obj.metadata, labels=labels))


def prepare_for_create(obj: Namespace) -> Namespace:
    finalizers = list(obj.spec.finalizers)
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    spec = NamespaceSpec(finalizers=finalizers)
    return default(replace(obj, spec=spec, status=NamespaceStatus(phase=ACTIVE)))


def prepare_for_update(new: Namespace, old: Namespace) -> Namespace:
    return replace(new, spec=old.spec)


def validate(obj: Namespace) -> Iterator[FieldError]:
    for finalizer in obj.spec.finalizers:
        found = names.qualified_name(finalizer) + names.core_finalizer(finalizer)
        yield from rules.problems("spec.finalizers", finalizer, found)


def validate_status(new: Namespace, old: Namespace) -> Iterator[FieldError]:
    leaving = bool(new.metadata.deletionTimestamp)
    if leaving and new.status.phase != TERMINATING:
        why = "may only be 'Terminating' if `deletionTimestamp` is not empty"
        yield FieldError.invalid("status.Phase", new.status.phase, why)
    if not leaving and new.status.phase != ACTIVE:
        why = "may only be 'Active' if `deletionTimestamp` is empty"
        yield FieldError.invalid("status.Phase", new.status.phase, why)


def prepare_for_delete(obj: Namespace) -> Namespace:
    """A namespace whose deletion was asked for is emptied first; it has no grace period."""
    metadata = replace(obj.metadata, deletionGracePeriodSeconds=None)
    return replace(obj, metadata=metadata, status=replace(obj.status, phase="Terminating"))


RESOURCE: Resource[Namespace] = Resource(
    type=Namespace,
    plural="namespaces",
    namespaced=False,
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    subresources=[Subresource("finalize", verbs=("update",)), STATUS],
    strategy=Strategy(
        counts_generation=False,
        check_name=names.dns_label,
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        validate=validate,
        validate_status=validate_status,
        blocks_deletion=lambda obj: bool(obj.spec.finalizers),
        prepare_for_delete=prepare_for_delete,
    ),
    presentation=Presentation(
        short_names=["ns"],
        fields={"status.phase": lambda obj: obj.status.phase},
        columns=[
            name_column(),
            Column(
                name="Status",
                cell=lambda obj: obj.status.phase,
                description="Whether the namespace is in use or on its way out.",
            ),
            age_column(),
        ],
    ),
)
