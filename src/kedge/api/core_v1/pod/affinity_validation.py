"""Validation of affinities, tolerations and topology spread constraints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kedge.api import rules
from kedge.api.core_v1.nesting import each, within
from kedge.api.core_v1.pod.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kedge.api.internal_forms import internal_form
from kedge.api.label_selector import validate_label_selector
from kedge.api.metadata import is_label_key
from kedge.api.model import LabelSelector
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_OPERATOR: Final = "not a valid selector operator"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_affinity(affinity: Affinity) -> Iterator[FieldError]:
    """Everything wrong with a pod's affinities."""
    if affinity.nodeAffinity is not None:
        yield from within("nodeAffinity", _node_affinity(affinity.nodeAffinity))
    if affinity.podAffinity is not None:
        yield from within("podAffinity", _pod_affinity(affinity.podAffinity))
    if affinity.podAntiAffinity is not None:
        yield from within("podAntiAffinity", _pod_affinity(affinity.podAntiAffinity))


def _node_affinity(affinity: NodeAffinity) -> Iterator[FieldError]:
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution
    if required is not None:
        yield from within(_REQUIRED, validate_node_selector(required))
    yield from each(
        _PREFERRED, affinity.preferredDuringSchedulingIgnoredDuringExecution, _preferred_node
    )


def validate_node_selector(selector: NodeSelector) -> Iterator[FieldError]:
    """Everything wrong with a choice of nodes."""
    if not selector.nodeSelectorTerms:
        why = "must have at least one node selector term"
        yield FieldError.required("nodeSelectorTerms", why)
    yield from each("nodeSelectorTerms", selector.nodeSelectorTerms, _strict_term)


def _strict_term(term: NodeSelectorTerm) -> Iterator[FieldError]:
    yield from _term(term)
    for i, requirement in enumerate(term.matchExpressions):
        for j, value in enumerate(requirement.values):
            path = f"matchExpressions[{i}].values[{j}]"
            yield from rules.problems(path, value, names.label_value(value))


def _term(term: NodeSelectorTerm) -> Iterator[FieldError]:
    yield from each("matchExpressions", term.matchExpressions, _label_requirement)
    yield from each("matchFields", term.matchFields, _field_requirement)


def _preferred_node(wish: PreferredSchedulingTerm) -> Iterator[FieldError]:
    yield from _weight(wish.weight)
    yield from within("preference", _term(wish.preference))


def _weight(weight: int) -> Iterator[FieldError]:
    if not 1 <= weight <= 100:
        yield FieldError.invalid("weight", weight, "must be in the range 1-100")


def _label_requirement(requirement: NodeSelectorRequirement) -> Iterator[FieldError]:
    operator, values = requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        if not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldError.required("values", why)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield FieldError.forbidden("values", why)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield FieldError.required("values", why)
    else:
        yield FieldError.invalid("operator", operator, _NO_OPERATOR)
    yield from rules.problems("key", requirement.key, names.qualified_name(requirement.key))


def _field_requirement(requirement: NodeSelectorRequirement) -> Iterator[FieldError]:
    if requirement.operator not in ("In", "NotIn"):
        yield FieldError.invalid("operator", requirement.operator, _NO_OPERATOR)
    elif len(requirement.values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield FieldError.required("values", why)
    if requirement.key != "metadata.name":
        yield FieldError.invalid("key", requirement.key, "not a valid field selector key")
        return
    for i, value in enumerate(requirement.values):
        yield from rules.problems(f"values[{i}]", value, names.dns_subdomain(value))


def _pod_affinity(affinity: PodAffinity | PodAntiAffinity) -> Iterator[FieldError]:
    yield from each(_REQUIRED, affinity.requiredDuringSchedulingIgnoredDuringExecution, _pod_term)
    yield from each(
        _PREFERRED, affinity.preferredDuringSchedulingIgnoredDuringExecution, _preferred_pods
    )


def _preferred_pods(wish: WeightedPodAffinityTerm) -> Iterator[FieldError]:
    yield from _weight(wish.weight)
    yield from within("podAffinityTerm", _pod_term(wish.podAffinityTerm))


def _pod_term(term: PodAffinityTerm) -> Iterator[FieldError]:
    yield from validate_label_selector(term.labelSelector, "labelSelector")
    yield from validate_label_selector(term.namespaceSelector, "namespaceSelector")
    for namespace in term.namespaces:
        yield from rules.problems("namespace", namespace, names.dns_label(namespace))
    yield from _own_labels(term.matchLabelKeys, term.mismatchLabelKeys, term.labelSelector)
    if not term.topologyKey:
        yield FieldError.required("topologyKey", "can not be empty")
    found = names.qualified_name(term.topologyKey)
    yield from rules.problems("topologyKey", term.topologyKey, found)


def _own_labels(
    match: Sequence[str], mismatch: Sequence[str], selector: LabelSelector | None
) -> Iterator[FieldError]:
    """The keys of the pod's own labels that a selector is to take over."""
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            yield FieldError.forbidden(name, "must not be specified when labelSelector is not set")
        elif keys:
            for i, key in enumerate(keys):
                yield from rules.problems(f"{name}[{i}]", key, names.qualified_name(key))
    places = {key: i for i, key in reversed(list(enumerate(match)))}
    if match and selector is not None:
        # By now the selector holds each key once, so a second time means the writer had it too.
        taken = set(selector.matchLabels)
        for requirement in selector.matchExpressions:
            if requirement.key in places and requirement.key in taken:
                why = "exists in both matchLabelKeys and labelSelector"
                yield FieldError.invalid(f"[{places[requirement.key]}]", requirement.key, why)
            taken.add(requirement.key)
    mismatched = frozenset(mismatch)
    for i, key in enumerate(match):
        if key in mismatched:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield FieldError.invalid(f"matchLabelKeys[{i}]", key, why)


def validate_spread(constraints: Sequence[TopologySpreadConstraint]) -> Iterator[FieldError]:
    """Everything wrong with how pods are to be spread."""
    last = {(one.topologyKey, one.whenUnsatisfiable): i for i, one in enumerate(constraints)}
    for i, one in enumerate(constraints):
        # Upstream compares each with the later ones, so the last of several is never the
        # duplicate.
        is_repeated = last[one.topologyKey, one.whenUnsatisfiable] > i
        yield from within(f"[{i}]", _spread(one, is_repeated=is_repeated))


def _spread(constraint: TopologySpreadConstraint, *, is_repeated: bool) -> Iterator[FieldError]:
    key, action = constraint.topologyKey, constraint.whenUnsatisfiable
    if constraint.maxSkew <= 0:
        yield FieldError.invalid("maxSkew", constraint.maxSkew, "must be greater than zero")
    if not key:
        yield FieldError.required("topologyKey", "can not be empty")
    actions = ("DoNotSchedule", "ScheduleAnyway")
    if action not in actions:
        yield FieldError.not_supported("whenUnsatisfiable", action, actions)
    if is_repeated:
        yield FieldError.duplicate("{topologyKey, whenUnsatisfiable}", f"{{{key}, {action}}}")
    least = constraint.minDomains
    if least is not None:
        if least <= 0:
            yield FieldError.invalid("minDomains", least, "must be greater than zero")
        if action != "DoNotSchedule":
            why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            yield FieldError.invalid("minDomains", least, why)
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = getattr(constraint, name)
        if policy not in (None, "Honor", "Ignore"):
            yield FieldError.not_supported(name, policy, ("Honor", "Ignore"))
    yield from _own_labels(constraint.matchLabelKeys, (), constraint.labelSelector)
    yield from validate_label_selector(constraint.labelSelector, "labelSelector")


def validate_toleration(toleration: Toleration) -> Iterator[FieldError]:
    """Everything wrong with a toleration."""
    key, operator, value = toleration.key, toleration.operator, toleration.value
    if key:
        if not is_label_key(key):
            yield from rules.problems("key", key, names.qualified_name(key))
    elif operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, "
            'which means "match all values and all keys"'
        )
        yield FieldError.invalid("operator", operator, why)
    if toleration.tolerationSeconds is not None and toleration.effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield FieldError.invalid("effect", toleration.effect, why)
    if operator in ("", "Equal"):
        if found := names.label_value(value):
            yield FieldError.invalid("operator", value, ";".join(found))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            yield FieldError.invalid("operator", value, why)
    else:
        known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        yield FieldError.not_supported("operator", operator, known)
    if toleration.effect and toleration.effect not in EFFECTS:
        yield FieldError.not_supported("effect", toleration.effect, EFFECTS)


def validate_node_selector_growth(
    new: Mapping[str, str], old: Mapping[str, str]
) -> Iterator[FieldError]:
    """A pod that is not yet let go may narrow the choice of nodes, not widen it."""
    if any(new.get(key) != value for key, value in old.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield FieldError.invalid("nodeSelector", new, why)


def validate_node_affinity_growth(
    new: NodeAffinity | None, old: NodeAffinity | None
) -> Iterator[FieldError]:
    """The same for the choice of nodes by affinity."""
    before, after = _terms(old), _terms(new)
    path = f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if before and len(before) != len(after):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        shown = [internal_form(term, "core.NodeSelectorTerm") for term in after] or None
        yield FieldError.invalid(path, shown, why)
        return
    for i, (was, now) in enumerate(zip(before, after, strict=False)):
        if not _only_grown(now, was):
            why = "only additions are allowed (no mutations or deletions)"
            yield FieldError.invalid(
                f"{path}[{i}]", internal_form(now, "core.NodeSelectorTerm"), why
            )


def _terms(affinity: NodeAffinity | None) -> Sequence[NodeSelectorTerm]:
    required = affinity and affinity.requiredDuringSchedulingIgnoredDuringExecution
    return required.nodeSelectorTerms if required else ()


def _only_grown(new: NodeSelectorTerm, old: NodeSelectorTerm) -> bool:
    if not old.matchExpressions and not old.matchFields:
        # A term without conditions matches nothing; any condition would widen it.
        return not new.matchExpressions and not new.matchFields
    return all(
        list(after[: len(before)]) == list(before)
        for after, before in (
            (new.matchExpressions, old.matchExpressions),
            (new.matchFields, old.matchFields),
        )
    )
