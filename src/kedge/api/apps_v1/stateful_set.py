"""StatefulSet: pods with names and storage of their own, started and ended in order."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import rolling, workload
from kedge.api.core_v1 import persistent_volume_claim
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.core_v1.pod.warnings import warn_template
from kedge.api.core_v1.volume.volume import PersistentVolumeClaimVolumeSource, Volume
from kedge.api.model import Int32, IntOrString, LabelSelector, Model, Object, Time, keyed
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import SCALE, STATUS, Resource, ScalePaths
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery import names
from kedge.machinery.errors import FieldError


class RollingUpdateStatefulSetStrategy(Model):
    """Which pods are replaced, and how many at a time."""

    partition: Int32 | None = None
    """Only pods with this number or a higher one are replaced. Default 0."""
    maxUnavailable: IntOrString | None = None
    """How many pods may be missing meanwhile. Not kept unless it was kept before."""


class StatefulSetUpdateStrategy(Model):
    """How pods are replaced."""

    type: str = ""
    """RollingUpdate or OnDelete. Default RollingUpdate."""
    rollingUpdate: RollingUpdateStatefulSetStrategy | None = None
    """The pace of a RollingUpdate."""


class StatefulSetPersistentVolumeClaimRetentionPolicy(Model):
    """The retention of the claims that were created from templates."""

    whenDeleted: str = ""
    """When the set is deleted: Retain or Delete. Default Retain."""
    whenScaled: str = ""
    """When the set shrinks: Retain or Delete. Default Retain."""


class StatefulSetOrdinals(Model):
    """How the pods are numbered."""

    start: Int32 = field(default_factory=int)
    """The first number."""


class StatefulSetSpec(Model):
    """The pods that are wanted."""

    __required__ = ("selector", "template")

    replicas: Int32 | None = None
    """How many pods are wanted. Default 1."""
    selector: LabelSelector | None = None
    """Labels by which the pods are known; cannot be changed."""
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of the pods; each gets a number as part of its name."""
    volumeClaimTemplates: Sequence[PersistentVolumeClaim] = ()
    """Claims made for each pod, mounted as volumes of their name."""
    serviceName: str = field(default_factory=str)
    """The headless service that gives the pods names in DNS."""
    podManagementPolicy: str = ""
    """OrderedReady (one after the other) or Parallel. Default OrderedReady."""
    updateStrategy: StatefulSetUpdateStrategy = field(default_factory=StatefulSetUpdateStrategy)
    """How pods of an older template are replaced."""
    revisionHistoryLimit: Int32 | None = None
    """How many old revisions are kept to go back to. Default 10."""
    minReadySeconds: Int32 = 0
    """How long a pod must be ready to count as available."""
    persistentVolumeClaimRetentionPolicy: StatefulSetPersistentVolumeClaimRetentionPolicy | None = (
        None
    )
    """The retention of claims whose pods are gone."""
    ordinals: StatefulSetOrdinals | None = None
    """How the pods are numbered. Default from 0."""


class StatefulSetCondition(Model):
    """One aspect of a set's state."""

    __required__ = ("type", "status")

    type: str = ""
    """The type of the condition."""
    status: str = ""
    """True, False or Unknown."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class StatefulSetStatus(Model):
    """The pods there are."""

    __required__ = ("replicas",)

    observedGeneration: int = 0
    """The generation that this status is about."""
    replicas: Int32 = field(default_factory=int)
    """How many pods there are."""
    readyReplicas: Int32 = 0
    """How many are ready."""
    currentReplicas: Int32 = 0
    """How many are of the current revision."""
    updatedReplicas: Int32 = 0
    """How many are of the revision that is being rolled out."""
    currentRevision: str = ""
    """The revision of the pods that are not replaced."""
    updateRevision: str = ""
    """The revision that is being rolled out."""
    collisionCount: Int32 | None = None
    """How often a name for a revision was taken already."""
    conditions: Annotated[Sequence[StatefulSetCondition], keyed("type")] = ()
    """Aspects of its state."""
    availableReplicas: Int32 = field(default_factory=int)
    """How many have been ready long enough."""


class StatefulSet(Object):
    """Keeps a number of pods running, each with a name and storage of its own."""

    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    """The pods that are wanted."""
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)
    """The pods there are."""


def _typed(claims: Sequence[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """Return claim templates with their kind and version, as upstream writes them."""
    return [replace(each, apiVersion="v1", kind="PersistentVolumeClaim") for each in claims]


def default(obj: StatefulSet) -> StatefulSet:
    spec = obj.spec
    kept = spec.persistentVolumeClaimRetentionPolicy
    kept = kept or StatefulSetPersistentVolumeClaimRetentionPolicy()
    history = spec.revisionHistoryLimit
    claims = _typed([persistent_volume_claim.default(each) for each in spec.volumeClaimTemplates])
    spec = replace(
        spec,
        replicas=1 if spec.replicas is None else spec.replicas,
        template=default_template(spec.template),
        volumeClaimTemplates=claims or (),
        podManagementPolicy=spec.podManagementPolicy or "OrderedReady",
        updateStrategy=_default_strategy(spec.updateStrategy),
        revisionHistoryLimit=10 if history is None else history,
        persistentVolumeClaimRetentionPolicy=StatefulSetPersistentVolumeClaimRetentionPolicy(
            whenDeleted=kept.whenDeleted or "Retain", whenScaled=kept.whenScaled or "Retain"
        ),
    )
    return replace(obj, spec=spec)


def _default_strategy(strategy: StatefulSetUpdateStrategy) -> StatefulSetUpdateStrategy:
    pace = strategy.rollingUpdate
    if not strategy.type:
        pace = pace or RollingUpdateStatefulSetStrategy()
    type_ = strategy.type or "RollingUpdate"
    if type_ == "RollingUpdate" and pace is not None and pace.partition is None:
        pace = replace(pace, partition=0)
    return StatefulSetUpdateStrategy(type=type_, rollingUpdate=pace)


def prepare_for_create(obj: StatefulSet) -> StatefulSet:
    return _without_max_unavailable(obj)


def prepare_for_update(new: StatefulSet, old: StatefulSet) -> StatefulSet:
    before = old.spec.updateStrategy.rollingUpdate
    if before is not None and before.maxUnavailable is not None:
        return new
    return _without_max_unavailable(new)


def _without_max_unavailable(obj: StatefulSet) -> StatefulSet:
    """Upstream drops the field unless a feature gate is on, which it is not by default."""
    pace = obj.spec.updateStrategy.rollingUpdate
    if pace is None or pace.maxUnavailable is None:
        return obj
    strategy = replace(obj.spec.updateStrategy, rollingUpdate=replace(pace, maxUnavailable=None))
    return replace(obj, spec=replace(obj.spec, updateStrategy=strategy))


def validate(obj: StatefulSet) -> Iterator[FieldError]:
    spec = obj.spec
    yield from _policies(spec)
    for i, claim in enumerate(spec.volumeClaimTemplates):
        at = f"spec.volumeClaimTemplates[{i}].spec"
        yield from persistent_volume_claim.validate_spec(claim.spec, at)
    yield from rules.nonnegative("spec.replicas", spec.replicas)
    yield from rules.nonnegative("spec.minReadySeconds", spec.minReadySeconds)
    if spec.ordinals is not None:
        yield from rules.nonnegative("spec.ordinals.start", spec.ordinals.start)
    if spec.serviceName:
        found = names.dns_label(spec.serviceName)
        yield from rules.problems("spec.serviceName", spec.serviceName, found)
    yield from workload.validate_selector(spec.selector, "statefulset")
    if not workload.is_readable(spec.selector):
        yield FieldError.invalid("spec.selector", spec.selector, "")
    else:
        if not workload.selects(spec.selector, spec.template):
            labels = spec.template.metadata.labels
            yield FieldError.invalid(
                "spec.template.metadata.labels", labels or None, workload.UNMATCHED
            )
        yield from validate_template(_numbered(spec), "spec.template")
    yield from workload.validate_lasting(spec.template, "StatefulSet")


def _numbered(spec: StatefulSetSpec) -> PodTemplateSpec:
    """The template as each pod will have it: hostname and subdomain given, claims mounted."""
    claimed = {claim.metadata.name for claim in spec.volumeClaimTemplates}
    volumes = [
        Volume(name=name, persistentVolumeClaim=PersistentVolumeClaimVolumeSource(claimName=name))
        for name in sorted(claimed)
    ]
    own = [volume for volume in spec.template.spec.volumes if volume.name not in claimed]
    pod = replace(spec.template.spec, hostname="", subdomain="", volumes=[*volumes, *own])
    return replace(spec.template, spec=pod)


def _policies(spec: StatefulSetSpec) -> Iterator[FieldError]:
    management = spec.podManagementPolicy
    if not management:
        yield FieldError.required("spec.podManagementPolicy")
    elif management not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        yield FieldError.invalid("spec.podManagementPolicy", management, why)
    yield from _strategy(spec.updateStrategy, "spec.updateStrategy")
    kept = spec.persistentVolumeClaimRetentionPolicy
    if kept is not None:
        path = "spec.persistentVolumeClaimRetentionPolicy"
        for word in ("whenDeleted", "whenScaled"):
            value = getattr(kept, word)
            if value not in ("Retain", "Delete"):
                yield FieldError.not_supported(f"{path}.{word}", value, ("Retain", "Delete"))


def _strategy(strategy: StatefulSetUpdateStrategy, path: str) -> Iterator[FieldError]:
    pace, at = strategy.rollingUpdate, f"{path}.rollingUpdate"
    if not strategy.type:
        yield FieldError.required(path)
    elif strategy.type == "OnDelete":
        if pace is not None:
            why = "only allowed for updateStrategy 'RollingUpdate'"
            yield FieldError.invalid(at, pace, why)
    elif strategy.type != "RollingUpdate":
        yield FieldError.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif pace is not None:
        yield from rules.nonnegative(f"{at}.partition", pace.partition)
        if pace.maxUnavailable is not None:
            most = f"{at}.maxUnavailable"
            yield from rolling.validate_amount(pace.maxUnavailable, most)
            if rolling.is_zero(pace.maxUnavailable):
                yield FieldError.invalid(most, pace.maxUnavailable, "cannot be 0")
            yield from rolling.validate_share(pace.maxUnavailable, most)


def validate_update(new: StatefulSet, old: StatefulSet) -> Iterator[FieldError]:
    free = replace(
        new.spec,
        replicas=old.spec.replicas,
        template=old.spec.template,
        updateStrategy=old.spec.updateStrategy,
        minReadySeconds=old.spec.minReadySeconds,
        ordinals=old.spec.ordinals,
        revisionHistoryLimit=old.spec.revisionHistoryLimit,
        persistentVolumeClaimRetentionPolicy=old.spec.persistentVolumeClaimRetentionPolicy,
        volumeClaimTemplates=_typed(new.spec.volumeClaimTemplates),
    )
    claims = _typed(old.spec.volumeClaimTemplates)
    if not workload.same(free, replace(old.spec, volumeClaimTemplates=claims)):
        why = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', "
            "'template', 'updateStrategy', 'revisionHistoryLimit', "
            "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        yield FieldError.forbidden("spec", why)


_PARTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_COUNTS = ("replicas", *_PARTS, "observedGeneration", "collisionCount")


def validate_status(new: StatefulSet, old: StatefulSet) -> Iterator[FieldError]:
    status = new.status
    yield from workload.validate_counts(status, _COUNTS)
    yield from workload.validate_parts(status, _PARTS)
    if status.availableReplicas > status.readyReplicas:
        why = "cannot be greater than status.readyReplicas"
        yield FieldError.invalid("status.availableReplicas", status.availableReplicas, why)
    yield from workload.validate_collisions(status.collisionCount, old.status.collisionCount)


def warn(obj: StatefulSet) -> Iterator[str]:
    yield from warn_template(obj.spec.template, "spec.template")
    if (obj.spec.revisionHistoryLimit or 0) < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; "
            "a value >= 0 is recommended"
        )


RESOURCE: Resource[StatefulSet] = Resource(
    type=StatefulSet,
    group="apps",
    plural="statefulsets",
    subresources=[SCALE, STATUS],
    scale=ScalePaths(),
    strategy=Strategy(
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=warn,
        warns_on_update=with_change_of_spec,
        check_name=names.dns_label,
    ),
    presentation=Presentation(
        short_names=["sts"],
        categories=["all"],
        columns=[
            name_column(),
            Column(
                name="Ready",
                description="How many pods are ready, of those wanted.",
                cell=lambda obj: f"{obj.status.readyReplicas}/{obj.spec.replicas or 0}",
            ),
            age_column(),
            *workload.template_columns(lambda obj: obj.spec.template),
        ],
    ),
)
