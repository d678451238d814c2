"""PriorityClass: a name for how important a pod is."""

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.model import Int32, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError

SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_FOR_USERS = 1_000_000_000
PREEMPT = "PreemptLowerPriority"
POLICIES = (PREEMPT, "Never")


class PriorityClass(Object):
    """A name for a priority that pods may have."""

    description: str = ""
    """When to use the class."""
    globalDefault: bool = False
    """Whether pods that name no class get this one."""
    preemptionPolicy: str | None = None
    """Whether its pods may push others out: PreemptLowerPriority or Never. Cannot be changed."""
    value: Int32 = field(default_factory=int)
    """The priority; higher goes first. Cannot be changed."""


def default(obj: PriorityClass) -> PriorityClass:
    return obj if obj.preemptionPolicy is not None else replace(obj, preemptionPolicy=PREEMPT)


def validate(obj: PriorityClass) -> Iterator[FieldError]:
    if obj.metadata.name.startswith(SYSTEM_PREFIX):
        if problem := _system_problem(obj):
            why = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved "
                f"for system use only. error: {problem}"
            )
            yield FieldError.forbidden("metadata.name", why)
    elif obj.value > HIGHEST_FOR_USERS:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_FOR_USERS}"
        yield FieldError.forbidden("value", why)
    if obj.preemptionPolicy is not None:
        yield from rules.one_of("preemptionPolicy", obj.preemptionPolicy, POLICIES)


def _system_problem(obj: PriorityClass) -> str:
    name = obj.metadata.name
    if name not in SYSTEM_CLASSES:
        return f"{name} is not a known system priority class"
    if obj.value != SYSTEM_CLASSES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if obj.globalDefault else ""


def validate_update(new: PriorityClass, old: PriorityClass) -> Iterator[FieldError]:
    if new.value != old.value:
        yield FieldError.forbidden("value", "may not be changed in an update.")
    yield from rules.unchanged("preemptionPolicy", new.preemptionPolicy, old.preemptionPolicy)


RESOURCE: Resource[PriorityClass] = Resource(
    type=PriorityClass,
    group="scheduling.k8s.io",
    plural="priorityclasses",
    namespaced=False,
    strategy=Strategy(
        default=default,
        # Upstream does not repeat the validation of a new class.
        validate_new=validate,
        validate_update=validate_update,
        # Upstream sets the first generation and never another.
        desired_state=lambda document: None,
    ),
    presentation=Presentation(
        short_names=["pc"],
        columns=[
            name_column(),
            Column(
                name="Value",
                type="integer",
                cell=lambda obj: obj.value,
                description="The priority.",
            ),
            Column(
                name="Global-Default",
                type="boolean",
                cell=lambda obj: obj.globalDefault,
                description="Whether pods that name no class get this one.",
            ),
            age_column(),
            Column(
                name="PreemptionPolicy",
                cell=lambda obj: obj.preemptionPolicy or "",
                description="Whether its pods may push others out.",
            ),
        ],
    ),
)
