"""DaemonSet: one pod on every node that fits."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import rolling, workload
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.core_v1.pod.warnings import warn_template
from kedge.api.label_selector import validate_label_selector
from kedge.api.model import Int32, IntOrString, LabelSelector, Model, Object, Time, keyed, null
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery.errors import FieldError

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class RollingUpdateDaemonSet(Model):
    """How fast old pods give way to new ones."""

    maxUnavailable: IntOrString | None = None
    """On how many nodes the pod may be missing meanwhile, as a number or a percentage."""
    maxSurge: IntOrString | None = None
    """On how many nodes there may be two pods meanwhile."""


class DaemonSetUpdateStrategy(Model):
    """How pods are replaced."""

    type: str = ""
    """RollingUpdate or OnDelete. Default RollingUpdate."""
    rollingUpdate: RollingUpdateDaemonSet | None = None
    """The pace of a RollingUpdate."""


class DaemonSetSpec(Model):
    """The pods that are wanted."""

    __required__ = ("selector", "template")

    selector: LabelSelector | None = None
    """Labels by which the pods are known; cannot be changed."""
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of the pods; its node selector says on which nodes they run."""
    updateStrategy: DaemonSetUpdateStrategy = field(default_factory=DaemonSetUpdateStrategy)
    """How pods of an older template are replaced."""
    minReadySeconds: Int32 = 0
    """How long a pod must be ready to count as available."""
    revisionHistoryLimit: Int32 | None = None
    """How many old revisions are kept to go back to. Default 10."""


class DaemonSetCondition(Model):
    """One aspect of a set's state."""

    __required__ = ("type", "status")

    type: str = ""
    """The type of the condition."""
    status: str = ""
    """True, False or Unknown."""
    lastTransitionTime: Time | None = field(default_factory=null)
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class DaemonSetStatus(Model):
    """The pods there are. Every number counts nodes."""

    __required__ = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    )

    currentNumberScheduled: Int32 = field(default_factory=int)
    """Nodes that have a pod and should."""
    numberMisscheduled: Int32 = field(default_factory=int)
    """Nodes that have a pod and should not."""
    desiredNumberScheduled: Int32 = field(default_factory=int)
    """Nodes that should have a pod."""
    numberReady: Int32 = field(default_factory=int)
    """Nodes whose pod is ready."""
    observedGeneration: int = 0
    """The generation that this status is about."""
    updatedNumberScheduled: Int32 = 0
    """Nodes whose pod has the present template."""
    numberAvailable: Int32 = 0
    """Nodes whose pod has been ready long enough."""
    numberUnavailable: Int32 = 0
    """Nodes that should have such a pod and have not."""
    collisionCount: Int32 | None = None
    """How often a name for a revision was taken already."""
    conditions: Annotated[Sequence[DaemonSetCondition], keyed("type")] = ()
    """Aspects of its state."""


class DaemonSet(Object):
    """Keeps one pod on every node that fits."""

    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    """The pods that are wanted."""
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)
    """The pods there are."""


def default(obj: DaemonSet) -> DaemonSet:
    history = obj.spec.revisionHistoryLimit
    spec = replace(
        obj.spec,
        template=default_template(obj.spec.template),
        updateStrategy=_default_strategy(obj.spec.updateStrategy),
        revisionHistoryLimit=10 if history is None else history,
    )
    # Upstream reads a missing annotation as 0 and writes it, so that the writer owns it.
    return _at_generation(replace(obj, spec=spec), _template_generation(obj))


def _default_strategy(strategy: DaemonSetUpdateStrategy) -> DaemonSetUpdateStrategy:
    type_ = strategy.type or "RollingUpdate"
    if type_ != "RollingUpdate":
        return strategy
    pace = strategy.rollingUpdate or RollingUpdateDaemonSet()
    pace = RollingUpdateDaemonSet(
        maxUnavailable=1 if pace.maxUnavailable is None else pace.maxUnavailable,
        maxSurge=0 if pace.maxSurge is None else pace.maxSurge,
    )
    return DaemonSetUpdateStrategy(type=type_, rollingUpdate=pace)


def prepare_for_create(obj: DaemonSet) -> DaemonSet:
    return _at_generation(obj, max(1, _template_generation(obj)))


def prepare_for_update(new: DaemonSet, old: DaemonSet) -> DaemonSet:
    """The template's generation is the server's to count."""
    changed = not workload.same(default(new).spec.template, old.spec.template)
    return _at_generation(new, _template_generation(old) + changed)


def _template_generation(obj: DaemonSet) -> int:
    written = obj.metadata.annotations.get(TEMPLATE_GENERATION, "")
    # Upstream parses 64 bits; a larger number counts as 0.
    return int(written) if written.isdecimal() and len(written) < 19 else 0


def _at_generation(obj: DaemonSet, generation: int) -> DaemonSet:
    annotations = {**obj.metadata.annotations, TEMPLATE_GENERATION: str(generation)}
    return replace(obj, metadata=replace(obj.metadata, annotations=annotations))


def validate(obj: DaemonSet) -> Iterator[FieldError]:
    spec = obj.spec
    yield from validate_label_selector(spec.selector, "spec.selector")
    if workload.is_readable(spec.selector) and not workload.selects(spec.selector, spec.template):
        labels = spec.template.metadata.labels
        yield FieldError.invalid(
            "spec.template.metadata.labels", labels or None, workload.UNMATCHED
        )
    if spec.selector is not None and workload.is_empty(spec.selector):
        why = "empty selector is invalid for daemonset"
        yield FieldError.invalid("spec.selector", spec.selector, why)
    yield from validate_template(spec.template, "spec.template")
    yield from workload.validate_lasting(spec.template, "DaemonSet")
    yield from rules.nonnegative("spec.minReadySeconds", spec.minReadySeconds)
    yield from _strategy(spec.updateStrategy, "spec.updateStrategy")
    yield from rules.nonnegative("spec.revisionHistoryLimit", spec.revisionHistoryLimit)


def _strategy(strategy: DaemonSetUpdateStrategy, path: str) -> Iterator[FieldError]:
    if strategy.type == "OnDelete":
        return
    if strategy.type != "RollingUpdate":
        yield FieldError.not_supported(path, strategy, ("RollingUpdate", "OnDelete"))
    elif strategy.rollingUpdate is None:
        yield FieldError.required(f"{path}.rollingUpdate")
    else:
        yield from _pace(strategy.rollingUpdate, f"{path}.rollingUpdate")


def _pace(pace: RollingUpdateDaemonSet, path: str) -> Iterator[FieldError]:
    yield from rolling.validate_amount(pace.maxUnavailable, f"{path}.maxUnavailable")
    yield from rolling.validate_amount(pace.maxSurge, f"{path}.maxSurge")
    yield from rolling.validate_share(pace.maxUnavailable, f"{path}.maxUnavailable")
    yield from rolling.validate_share(pace.maxSurge, f"{path}.maxSurge")
    fewer = not rolling.is_zero(pace.maxUnavailable)
    more = not rolling.is_zero(pace.maxSurge)
    if fewer and more:
        why = "may not be set when maxUnavailable is non-zero"
        yield FieldError.invalid(f"{path}.maxSurge", pace.maxSurge, why)
    elif not fewer and not more:
        yield FieldError.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def validate_update(new: DaemonSet, old: DaemonSet) -> Iterator[FieldError]:
    yield from workload.unchanged("spec.selector", new.spec.selector, old.spec.selector)


_COUNTS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def validate_status(new: DaemonSet, old: DaemonSet) -> Iterator[FieldError]:
    yield from workload.validate_counts(new.status, _COUNTS)
    yield from workload.validate_collisions(new.status.collisionCount, old.status.collisionCount)


def node_selector_cell(obj: DaemonSet) -> str:
    wanted = obj.spec.template.spec.nodeSelector
    return ",".join(f"{key}={wanted[key]}" for key in sorted(wanted)) or workload.NONE


RESOURCE: Resource[DaemonSet] = Resource(
    type=DaemonSet,
    group="apps",
    plural="daemonsets",
    subresources=[STATUS],
    strategy=Strategy(
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        prepare_for_status_update=lambda new, old: _at_generation(new, _template_generation(old)),
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=lambda obj: warn_template(obj.spec.template, "spec.template"),
        warns_on_update=with_change_of_spec,
    ),
    presentation=Presentation(
        short_names=["ds"],
        categories=["all"],
        columns=[
            name_column(),
            Column(
                name="Desired",
                type="integer",
                description="Nodes that should have a pod.",
                cell=lambda obj: obj.status.desiredNumberScheduled,
            ),
            Column(
                name="Current",
                type="integer",
                description="Nodes that have a pod and should.",
                cell=lambda obj: obj.status.currentNumberScheduled,
            ),
            Column(
                name="Ready",
                type="integer",
                description="Nodes whose pod is ready.",
                cell=lambda obj: obj.status.numberReady,
            ),
            Column(
                name="Up-to-date",
                type="integer",
                description="Nodes whose pod has the present template.",
                cell=lambda obj: obj.status.updatedNumberScheduled,
            ),
            Column(
                name="Available",
                type="integer",
                description="Nodes whose pod has been ready long enough.",
                cell=lambda obj: obj.status.numberAvailable,
            ),
            Column(
                name="Node Selector",
                description="Labels of the nodes on which pods run.",
                cell=node_selector_cell,
            ),
            age_column(),
            *workload.template_columns(
                lambda obj: obj.spec.template, lambda obj: obj.spec.selector
            ),
        ],
    ),
)
