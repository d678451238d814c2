"""Required and preferred node selectors of a pod, compiled once and matched often."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.pod.affinity import NodeSelectorRequirement, NodeSelectorTerm
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.machinery.selectors import LabelRequirements, Requirement, labels_from_map

Labels = Mapping[str, str]
Match = Callable[[str, Labels], bool]
"""Takes a node's name and labels."""

NAME_FIELD: Final = "metadata.name"

_OPERATORS: Final = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}


def required_terms(spec: PodSpec) -> Sequence[NodeSelectorTerm] | None:
    """The alternatives of a pod's required node affinity; None if it requires nothing."""
    affinity = spec.affinity.nodeAffinity if spec.affinity is not None else None
    if affinity is None or affinity.requiredDuringSchedulingIgnoredDuringExecution is None:
        return None
    return affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms


def required_nodes(spec: PodSpec) -> Match | None:
    """Whether a node satisfies nodeSelector and required affinity; None if any node does."""
    terms = required_terms(spec)
    if terms is None and not spec.nodeSelector:
        return None
    selector = labels_from_map(spec.nodeSelector)
    if terms is None:
        return lambda name, labels: selector.matches(labels)
    alternatives = [match for term in terms if (match := compiled(term)) is not None]

    def matches(name: str, labels: Labels) -> bool:
        return selector.matches(labels) and any(match(name, labels) for match in alternatives)

    return matches


def preferred_nodes(spec: PodSpec) -> list[tuple[int, Match]]:
    """A pod's wishes about nodes, each with its weight."""
    affinity = spec.affinity.nodeAffinity if spec.affinity is not None else None
    if affinity is None:
        return []
    wishes = affinity.preferredDuringSchedulingIgnoredDuringExecution
    found = [(wish.weight, compiled(wish.preference)) for wish in wishes if wish.weight]
    return [(weight, match) for weight, match in found if match is not None]


def compiled(term: NodeSelectorTerm) -> Match | None:
    """One alternative, ready to match; None if no node can, as it is empty or makes no sense."""
    if not term.matchExpressions and not term.matchFields:
        return None
    try:
        selector = LabelRequirements(_requirements(term.matchExpressions))
    except (KeyError, ValueError):
        return None
    if not all(_is_about_one_name(each) for each in term.matchFields):
        return None
    wanted = [each.values[0] for each in term.matchFields if each.operator == "In"]
    unwanted = [each.values[0] for each in term.matchFields if each.operator == "NotIn"]

    def matches(name: str, labels: Labels) -> bool:
        if any(name != each for each in wanted) or name in unwanted:
            return False
        return selector.matches(labels)

    return matches


def names_of(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """The nodes that the alternatives name; None if one of them does without a name."""
    found: frozenset[str] = frozenset()
    for term in terms:
        names = [frozenset(each.values) for each in term.matchFields if _is_name(each)]
        if not names:
            return None
        found |= frozenset.intersection(*names)
    return found


def _requirements(expressions: Sequence[NodeSelectorRequirement]) -> Iterator[Requirement]:
    for each in expressions:
        yield Requirement(each.key, _OPERATORS[each.operator], tuple(each.values))


def _is_about_one_name(each: NodeSelectorRequirement) -> bool:
    return each.key == NAME_FIELD and each.operator in ("In", "NotIn") and len(each.values) == 1


def _is_name(each: NodeSelectorRequirement) -> bool:
    return each.key == NAME_FIELD and each.operator == "In"
