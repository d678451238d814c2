"""Authorizer: superusers, then nodes, then RBAC; the first to allow decides."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from kedge.api.catalog import Catalog
from kedge.api.rbac_v1.role import PolicyRule
from kedge.apiserver.authorization import node
from kedge.apiserver.authorization.attributes import (
    Attributes,
    Decision,
    denied,
)
from kedge.apiserver.authorization.node import NodeAuthorizer, node_name
from kedge.apiserver.authorization.rbac import Policy, RbacAuthorizer, not_found, together
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import WatchCache

SUPERUSERS: Final = "system:masters"
"""The group that may do everything whatever roles say, so that its members cannot be shut out."""

ALLOWED: Final = Decision(True)
"""The decision about a superuser."""


Decide = Callable[[Attributes], Decision]
OwnAuthorizer = Literal["Node", "RBAC"]
ALWAYS_ALLOWED: Final = ("/healthz", "/livez", "/readyz")
"""Paths that configured authorizers are not asked about."""


class Authorizer:
    """Decides for a whole server."""

    def __init__(self, policy: Policy, nodes: NodeAuthorizer) -> None:
        self.policy = policy
        self._nodes = nodes
        self._chain: Sequence[Decide] = ()

    @classmethod
    def following(cls, cache: WatchCache, catalog: Catalog) -> "Authorizer":
        """One that always knows the roles, bindings and pods of a server."""
        graph = node.followed(cache, catalog)
        return cls(RbacAuthorizer(cache).policy, NodeAuthorizer(graph))

    def configure(self, chain: Sequence[Decide | OwnAuthorizer]) -> None:
        """Ask these authorizers, in order, instead of Node and RBAC."""
        own: dict[object, Decide] = {"Node": self._nodes.decide, "RBAC": self.policy.decide}
        self._chain = [each if callable(each) else own[each] for each in chain]

    def _configured(self, asked: Attributes) -> Decision:
        """Return the first decision that is not just no opinion."""
        if not asked.plural and asked.path in ALWAYS_ALLOWED:
            return ALLOWED
        reasons = []
        for decide in self._chain:
            decision = decide(asked)
            if decision.allowed:
                return decision
            reasons.append(decision.reason)
            if decision.final:
                break
        return Decision(False, "\n".join(filter(None, reasons)))

    def decide(self, asked: Attributes) -> Decision:
        if SUPERUSERS in asked.user.groups:
            return ALLOWED
        if self._chain:
            return self._configured(asked)
        by_node = self._nodes.decide(asked)
        if by_node.allowed:
            return by_node
        by_role = self.policy.decide(asked)
        if by_role.allowed or not by_node.reason:
            return by_role
        return Decision(False, "\n".join(filter(None, (by_node.reason, by_role.reason))))

    def require(self, asked: Attributes) -> None:
        """403 unless allowed."""
        decision = self.decide(asked)
        if not decision.allowed:
            raise denied(asked, decision.reason)

    def rules_for(self, user: User, namespace: str) -> dict[str, Any]:
        """The status of a SelfSubjectRulesReview: all that the user may do in a namespace."""
        rules = self.policy.rules_for(user, namespace)
        errors = []
        if node_name(user) is not None:
            errors.append("node authorizer does not support user rule resolution")
        missing = self.policy.missing_roles(user, namespace)
        if missing:
            errors.append(not_found(missing))
        if self._chain:
            errors.append("webhook authorizer does not support user rule resolution")
        status: dict[str, Any] = {
            "resourceRules": [_shown(rule) for rule in rules if rule.resources],
            "nonResourceRules": [_shown(rule) for rule in rules if rule.nonResourceURLs],
            "incomplete": node_name(user) is not None or bool(self._chain),
        }
        if errors:
            status["evaluationError"] = together(errors)
        return status


def _shown(rule: PolicyRule) -> dict[str, list[str]]:
    fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return {field: list(values) for field in fields if (values := getattr(rule, field))}
