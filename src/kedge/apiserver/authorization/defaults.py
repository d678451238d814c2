"""The roles and bindings that every cluster has, as objects."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from kedge.api.model import LabelSelector, ObjectMeta
from kedge.api.rbac_v1.cluster_role import AggregationRule, ClusterRole
from kedge.api.rbac_v1.cluster_role_binding import ClusterRoleBinding
from kedge.api.rbac_v1.role import GROUP, PolicyRule, Role
from kedge.api.rbac_v1.role_binding import SERVICE_ACCOUNT, RoleBinding, RoleRef, Subject
from kedge.apiserver.authorization import default_rules

AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
"""The annotation of what the server mends unless it says `false`."""
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
ANNOTATIONS: Final = {AUTOUPDATE: "true"}

AnyRole = Role | ClusterRole
AnyBinding = RoleBinding | ClusterRoleBinding

_SHORT: Final = {
    "read": ("get", "list", "watch"),
    "write": ("create", "delete", "deletecollection", "patch", "update"),
}
_REPORT: Final = "create,patch,update core,events.k8s.io: events"


def roles() -> Iterator[AnyRole]:
    """Every default role, cluster roles first."""
    for name, part_of in default_rules.SUMS.items():
        selector = LabelSelector(matchLabels=_part_of(name))
        rule = AggregationRule(clusterRoleSelectors=[selector])
        yield ClusterRole(metadata=_meta(name, labels=_part_of(part_of)), aggregationRule=rule)
    for name, rules in _listed(default_rules.CLUSTER_ROLES):
        _, _, part_of = name.partition("system:aggregate-to-")
        yield ClusterRole(metadata=_meta(name, labels=_part_of(part_of)), rules=rules)
    everybody = _part_of("view") | _part_of("edit") | _part_of("admin")
    for name, rules in _listed(default_rules.ADDED):
        yield ClusterRole(metadata=_meta(name, labels=everybody), rules=rules)
    for name, rules in _listed(default_rules.CONTROLLERS):
        yield ClusterRole(metadata=_meta(_controller(name)), rules=rules)
    for path, rules in _listed(default_rules.ROLES):
        namespace, _, name = path.partition("/")
        yield Role(metadata=_meta(name, namespace), rules=rules)


def bindings() -> Iterator[AnyBinding]:
    """Every default binding, cluster role bindings first."""
    given = dict(default_rules.CLUSTER_BINDINGS)
    for name, _ in _listed(default_rules.CONTROLLERS):
        given[_controller(name)] = f"{SERVICE_ACCOUNT} {name}"
    for name, subjects in given.items():
        ref = RoleRef(apiGroup=GROUP, kind="ClusterRole", name=name)
        yield ClusterRoleBinding(metadata=_meta(name), roleRef=ref, subjects=_subjects(subjects))
    for path, subjects in default_rules.BINDINGS.items():
        namespace, _, name = path.partition("/")
        ref = RoleRef(apiGroup=GROUP, kind="Role", name=name)
        meta = _meta(default_rules.BINDING_NAMES.get(name, name), namespace)
        yield RoleBinding(metadata=meta, roleRef=ref, subjects=_subjects(subjects))


@cache
def node_rules() -> Sequence[PolicyRule]:
    """Return the rules of all nodes, which do not depend on the node's name."""
    upstream = dict(_listed(default_rules.CLUSTER_ROLES))["system:node"]
    [(_, added)] = _listed(default_rules.AGENT)
    return (*upstream, *added)


def node_objects_elsewhere() -> tuple[ClusterRole, ClusterRoleBinding]:
    """Return the role of kedge's nodes on a control plane of Kubernetes, and its binding."""
    name = default_rules.NODE_ROLE
    rules = [
        rule
        for text in (default_rules.AGENT, default_rules.ELSEWHERE)
        for _, listed in _listed(text)
        for rule in listed
    ]
    ref = RoleRef(apiGroup=GROUP, kind="ClusterRole", name=name)
    nodes = [Subject(kind="Group", apiGroup=GROUP, name="system:nodes")]
    meta = ObjectMeta(name=name)
    return (
        ClusterRole(metadata=meta, rules=rules),
        ClusterRoleBinding(metadata=meta, roleRef=ref, subjects=nodes),
    )


def _listed(text: str) -> Iterator[tuple[str, list[PolicyRule]]]:
    """Each role of a listing, by name."""
    joined = text.replace("\n    ", " ")
    name, rules = "", []
    for line in joined.splitlines():
        if line.startswith("  "):
            rules.append(_rule(line.strip()))
            continue
        if name:
            yield name, rules
        name, rules = line, []
    yield name, rules


def _rule(text: str) -> PolicyRule:
    verbs, rest = (_REPORT if text == "report" else text).split(" ", 1)
    spelled = [each for verb in verbs.split(",") for each in _SHORT.get(verb, (verb,))]
    groups, colon, what = rest.partition(": ")
    if not colon:
        return PolicyRule(verbs=sorted(spelled), nonResourceURLs=rest.split())
    resources, _, names = what.partition(" named ")
    return PolicyRule(
        verbs=sorted(spelled),
        apiGroups=["" if group == "core" else group for group in groups.split(",")],
        resources=resources.split(),
        resourceNames=names.split() or (),
    )


def _subjects(text: str) -> Sequence[Subject]:
    return [_subject(*each.split()) for each in text.split(", ") if each] or ()


def _subject(kind: str, name: str) -> Subject:
    if kind == SERVICE_ACCOUNT:
        return Subject(kind=kind, name=name, namespace="kube-system")
    return Subject(kind=kind, name=name, apiGroup=GROUP)


def _controller(name: str) -> str:
    return f"system:controller:{name}"


def _part_of(sum_: str) -> dict[str, str]:
    return {f"{GROUP}/aggregate-to-{sum_}": "true"} if sum_ else {}


def _meta(name: str, namespace: str = "", labels: Mapping[str, str] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        labels={**LABELS, **(labels or {})},
        annotations=ANNOTATIONS,
    )
