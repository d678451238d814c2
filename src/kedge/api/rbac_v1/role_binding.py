"""RoleBinding: who may do within one namespace what a role says."""

from collections.abc import Iterator, Sequence

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.internal_forms import internal_form
from kedge.api.model import Model, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.rbac_v1.role import GROUP
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

SERVICE_ACCOUNT = "ServiceAccount"
USER = "User"
GROUP_KIND = "Group"


class RoleRef(Model):
    """The role that is given."""

    __required__ = ("kind", "name")
    __atomic__ = True

    apiGroup: str = field(default_factory=str)
    """Group of the role's kind; always rbac.authorization.k8s.io."""
    kind: str = field(default_factory=str)
    """Role or ClusterRole."""
    name: str = field(default_factory=str)
    """Name of the role."""


class Subject(Model):
    """A user, group or service account that gets the role."""

    __required__ = ("kind", "name")
    __atomic__ = True

    apiGroup: str = ""
    """Group of the kind; filled in by the server."""
    kind: str = field(default_factory=str)
    """User, Group or ServiceAccount."""
    name: str = field(default_factory=str)
    """Name of the user, group or account."""
    namespace: str = ""
    """Namespace of a service account; empty for others."""


class RoleBinding(Object):
    """Grants a role within one namespace."""

    __required__ = ("roleRef",)

    roleRef: RoleRef = field(default_factory=RoleRef)
    """A role of the same namespace, or a cluster role. Cannot be changed."""
    subjects: Sequence[Subject] = ()
    """The subjects that get the role."""


def default(obj: RoleBinding) -> RoleBinding:
    subjects = default_subjects(obj.subjects)
    return replace(obj, roleRef=default_role_ref(obj.roleRef), subjects=subjects)


def default_role_ref(ref: RoleRef) -> RoleRef:
    return ref if ref.apiGroup else replace(ref, apiGroup=GROUP)


def default_subjects(subjects: Sequence[Subject]) -> Sequence[Subject]:
    """The same subjects, each with the group that its kind belongs to."""
    if not subjects:
        return ()
    return [
        replace(subject, apiGroup=GROUP)
        if not subject.apiGroup and subject.kind in (USER, GROUP_KIND)
        else subject
        for subject in subjects
    ]


def validate(obj: RoleBinding) -> Iterator[FieldError]:
    yield from validate_role_ref(obj.roleRef, ("Role", "ClusterRole"))
    for i, subject in enumerate(obj.subjects):
        yield from validate_subject(subject, f"subjects[{i}]")


def validate_role_ref(ref: RoleRef, kinds: Sequence[str]) -> Iterator[FieldError]:
    """Everything wrong with the role of a binding that can give roles of these kinds."""
    if ref.apiGroup != GROUP:
        yield FieldError.not_supported("roleRef.apiGroup", ref.apiGroup, [GROUP])
    if ref.kind not in kinds:
        yield FieldError.not_supported("roleRef.kind", ref.kind, kinds)
    if not ref.name:
        yield FieldError.required("roleRef.name")
    else:
        yield from rules.problems("roleRef.name", ref.name, names.path_segment(ref.name))


def validate_subject(subject: Subject, path: str) -> Iterator[FieldError]:
    """Everything wrong with a subject of any binding."""
    if not subject.name:
        yield FieldError.required(f"{path}.name")
    if subject.kind == SERVICE_ACCOUNT:
        if subject.name:
            found = names.dns_subdomain(subject.name)
            yield from rules.problems(f"{path}.name", subject.name, found)
        if subject.apiGroup:
            yield FieldError.not_supported(f"{path}.apiGroup", subject.apiGroup, [""])
    elif subject.kind in (USER, GROUP_KIND):
        if subject.apiGroup != GROUP:
            yield FieldError.not_supported(f"{path}.apiGroup", subject.apiGroup, [GROUP])
    else:
        kinds = (SERVICE_ACCOUNT, USER, GROUP_KIND)
        yield FieldError.not_supported(f"{path}.kind", subject.kind, kinds)


def validate_same_role(new: RoleRef, old: RoleRef) -> Iterator[FieldError]:
    if new != old:
        yield FieldError.invalid(
            "roleRef", internal_form(new, "rbac.RoleRef"), "cannot change roleRef"
        )


def validate_update(new: RoleBinding, old: RoleBinding) -> Iterator[FieldError]:
    return validate_same_role(new.roleRef, old.roleRef)


def subjects_cell(subjects: Sequence[Subject], kind: str) -> str:
    """The subjects of one kind, by name."""
    return ", ".join(
        f"{subject.namespace}/{subject.name}" if kind == SERVICE_ACCOUNT else subject.name
        for subject in subjects
        if subject.kind == kind
    )


COLUMNS = (
    name_column(),
    Column(
        name="Role",
        cell=lambda obj: f"{obj.roleRef.kind}/{obj.roleRef.name}",
        description="The role that is given.",
    ),
    age_column(),
    Column(
        name="Users",
        cell=lambda obj: subjects_cell(obj.subjects, USER),
        priority=1,
        description="Users who get it.",
    ),
    Column(
        name="Groups",
        cell=lambda obj: subjects_cell(obj.subjects, GROUP_KIND),
        priority=1,
        description="Groups that get it.",
    ),
    Column(
        name="ServiceAccounts",
        cell=lambda obj: subjects_cell(obj.subjects, SERVICE_ACCOUNT),
        priority=1,
        description="Service accounts that get it.",
    ),
)

RESOURCE: Resource[RoleBinding] = Resource(
    type=RoleBinding,
    group=GROUP,
    plural="rolebindings",
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
