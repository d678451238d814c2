"""ClusterRoleBinding: who may do everywhere what a cluster role says."""

from collections.abc import Iterator, Sequence

from msgspec import field
from msgspec.structs import replace

from kedge.api.model import Object
from kedge.api.presentation import Presentation
from kedge.api.rbac_v1.role import GROUP
from kedge.api.rbac_v1.role_binding import (
    COLUMNS,
    SERVICE_ACCOUNT,
    RoleRef,
    Subject,
    default_role_ref,
    default_subjects,
    validate_role_ref,
    validate_same_role,
    validate_subject,
)
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError


class ClusterRoleBinding(Object):
    """Grants a cluster role in all namespaces."""

    __required__ = ("roleRef",)

    roleRef: RoleRef = field(default_factory=RoleRef)
    """A cluster role. Cannot be changed."""
    subjects: Sequence[Subject] = ()
    """The subjects that get the role."""


def default(obj: ClusterRoleBinding) -> ClusterRoleBinding:
    subjects = default_subjects(obj.subjects)
    return replace(obj, roleRef=default_role_ref(obj.roleRef), subjects=subjects)


def validate(obj: ClusterRoleBinding) -> Iterator[FieldError]:
    yield from validate_role_ref(obj.roleRef, ("ClusterRole",))
    for i, subject in enumerate(obj.subjects):
        yield from validate_subject(subject, f"subjects[{i}]")
        if subject.kind == SERVICE_ACCOUNT and not subject.namespace:
            yield FieldError.required(f"subjects[{i}].namespace")


def validate_update(new: ClusterRoleBinding, old: ClusterRoleBinding) -> Iterator[FieldError]:
    return validate_same_role(new.roleRef, old.roleRef)


RESOURCE: Resource[ClusterRoleBinding] = Resource(
    type=ClusterRoleBinding,
    group=GROUP,
    plural="clusterrolebindings",
    namespaced=False,
    strategy=Strategy(
        counts_generation=False,
        allows_create_on_update=True,
        check_name=names.path_segment,
        default=default,
        validate=validate,
        validate_update=validate_update,
    ),
    presentation=Presentation(columns=COLUMNS),
)
