"""ClusterRole: what may be done in all namespaces, or in each where it is bound."""

from collections.abc import Iterator, Sequence

from kedge.api.label_selector import validate_label_selector
from kedge.api.model import LabelSelector, Model, Object
from kedge.api.rbac_v1.role import GROUP, PolicyRule, validate_rule
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError


class AggregationRule(Model):
    """Makes a role the sum of others."""

    clusterRoleSelectors: Sequence[LabelSelector] = ()
    """The cluster roles whose rules are gathered, by label; any selector will do."""


class ClusterRole(Object):
    """Permissions in all namespaces, or in each namespace with a binding."""

    aggregationRule: AggregationRule | None = None
    """If set, the rules are gathered from other cluster roles."""
    rules: Sequence[PolicyRule] = ()
    """The permissions."""


def validate(obj: ClusterRole) -> Iterator[FieldError]:
    for i, rule in enumerate(obj.rules):
        yield from validate_rule(rule, f"rules[{i}]")
    if obj.aggregationRule is None:
        return
    path = "aggregationRule.clusterRoleSelectors"
    if not obj.aggregationRule.clusterRoleSelectors:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield FieldError.required(path, why)
    for i, selector in enumerate(obj.aggregationRule.clusterRoleSelectors):
        found = list(validate_label_selector(selector, f"{path}[{i}]"))
        yield from found
        if found:
            yield FieldError.invalid(f"{path}[{i}]", None, "invalid label selector.")


RESOURCE: Resource[ClusterRole] = Resource(
    type=ClusterRole,
    group=GROUP,
    plural="clusterroles",
    namespaced=False,
    strategy=Strategy(
        counts_generation=False,
        allows_create_on_update=True,
        check_name=names.path_segment,
        validate=validate,
    ),
)
