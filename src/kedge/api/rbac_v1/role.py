"""Role: what may be done within one namespace."""

from collections.abc import Iterator, Sequence

from kedge.api.model import Model, Object
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

GROUP = "rbac.authorization.k8s.io"


class PolicyRule(Model):
    """Something that may be done. Nothing is forbidden by rules, only allowed."""

    __required__ = ("verbs",)

    apiGroups: Sequence[str] = ()
    """API groups of the resources; empty text is the core group, * every group."""
    nonResourceURLs: Sequence[str] = ()
    """Paths that are no resources, perhaps with * at the end; cluster roles only."""
    resourceNames: Sequence[str] = ()
    """Names of single objects; none means all."""
    resources: Sequence[str] = ()
    """Resources, for instance pods or pods/log; * every one."""
    verbs: Sequence[str] = ()
    """The allowed verbs, for instance get or list; * allows all."""


class Role(Object):
    """Permissions within one namespace."""

    rules: Sequence[PolicyRule] = ()
    """The permissions."""


def validate(obj: Role) -> Iterator[FieldError]:
    for i, rule in enumerate(obj.rules):
        path = f"rules[{i}]"
        yield from validate_rule(rule, path)
        if rule.nonResourceURLs:
            why = "namespaced rules cannot apply to non-resource URLs"
            yield FieldError.invalid(f"{path}.nonResourceURLs", rule.nonResourceURLs, why)


def validate_rule(rule: PolicyRule, path: str) -> Iterator[FieldError]:
    """Everything wrong with a rule of any role."""
    if not rule.verbs:
        yield FieldError.required(f"{path}.verbs", "verbs must contain at least one value")
    if rule.nonResourceURLs:
        if rule.apiGroups or rule.resources or rule.resourceNames:
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield FieldError.invalid(f"{path}.nonResourceURLs", rule.nonResourceURLs, why)
        return
    if not rule.apiGroups:
        why = "resource rules must supply at least one api group"
        yield FieldError.required(f"{path}.apiGroups", why)
    if not rule.resources:
        why = "resource rules must supply at least one resource"
        yield FieldError.required(f"{path}.resources", why)


RESOURCE: Resource[Role] = Resource(
    type=Role,
    group=GROUP,
    plural="roles",
    strategy=Strategy(
        counts_generation=False,
        allows_create_on_update=True,
        check_name=names.path_segment,
        validate=validate,
    ),
)
