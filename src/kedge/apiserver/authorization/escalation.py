"""Escalation: users cannot grant permissions that they do not have, by a role or by a binding."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.model import Object
from kedge.api.rbac_v1.cluster_role import ClusterRole
from kedge.api.rbac_v1.cluster_role_binding import ClusterRoleBinding
from kedge.api.rbac_v1.role import GROUP, PolicyRule, Role
from kedge.api.rbac_v1.role_binding import RoleBinding, RoleRef
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.authorizer import SUPERUSERS, Authorizer
from kedge.apiserver.authorization.rbac import EVERYWHERE, RoleName, together
from kedge.apiserver.authorization.rights import TooManyPermissions, uncovered
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import forbidden, not_found

EVERYTHING: Final = (
    PolicyRule(verbs=("*",), apiGroups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), nonResourceURLs=("*",)),
)
"""The permissions that a user needs to let a cluster role aggregate the rules of others."""


class Escalation(MutatingPlugin):
    """A member of the admission chain that is always on, after all that change objects."""

    name = "Escalation"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, attempt: Attempt) -> Object | None:
        # Upstream asks before it validates the object: who may not, learns nothing more.
        self.check(attempt)
        return attempt.object

    def check(self, attempt: Attempt) -> None:
        """403 if a write of a role or binding would give away more than its author holds."""
        request, obj = attempt.request, attempt.object
        if request.resource.group != GROUP or attempt.operation not in ("CREATE", "UPDATE"):
            return
        if SUPERUSERS in request.user.groups or _only_collected(obj, attempt.old):
            return
        if isinstance(obj, Role | ClusterRole):
            self._check_role(request, obj, attempt.old)
        elif isinstance(obj, RoleBinding | ClusterRoleBinding):
            self._check_binding(request, obj)

    def _check_role(self, request: Request, obj: Role | ClusterRole, old: Object | None) -> None:
        if self._may_escalate(request):
            return
        self._check_held(request, obj, obj.rules)
        if _gathers(obj) or _gathers(old):
            held = self._authorizer.policy.rights_of(request.user, request.namespace)
            if uncovered(held, EVERYTHING):
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise forbidden(GROUP, request.resource.plural, obj.metadata.name, why)

    def _check_binding(self, request: Request, obj: RoleBinding | ClusterRoleBinding) -> None:
        if self._may_bind(request, obj.roleRef):
            return
        home = request.namespace if obj.roleRef.kind == "Role" else EVERYWHERE
        rules = self._authorizer.policy.rules_of(RoleName(home, obj.roleRef.name))
        if rules is None:
            # Upstream names the kind that is written, not the one that is missing.
            raise not_found(GROUP, request.resource.plural, obj.roleRef.name)
        self._check_held(request, obj, rules)

    def _may_escalate(self, request: Request) -> bool:
        # A new object's name is not known when rights are looked at, so no right by name helps.
        name = "" if request.verb == "create" else request.name
        return self._allows(request, "escalate", request.resource.plural, name)

    def _may_bind(self, request: Request, ref: RoleRef) -> bool:
        plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(ref.kind)
        return plural is not None and self._allows(request, "bind", plural, ref.name)

    def _allows(self, request: Request, verb: str, plural: str, name: str) -> bool:
        asked = Attributes(
            user=request.user,
            verb=verb,
            group=GROUP,
            version="*",
            plural=plural,
            namespace=request.namespace,
            name=name,
        )
        return self._authorizer.decide(asked).allowed

    def _check_held(self, request: Request, obj: Object, rules: Sequence[PolicyRule]) -> None:
        policy = self._authorizer.policy
        try:
            missing = uncovered(policy.rights_of(request.user, request.namespace), rules)
        except TooManyPermissions as error:
            name = obj.metadata.name
            raise forbidden(GROUP, request.resource.plural, name, str(error)) from None
        if missing:
            why = _complaint(request.user, missing)
            absent = policy.missing_roles(request.user, request.namespace)
            if absent:
                plural = request.resource.plural
                errors = [str(not_found(GROUP, plural, role.name)) for role in absent]
                why += f"; resolution errors: [{together(errors)}]"
            raise forbidden(GROUP, request.resource.plural, obj.metadata.name, why)


def _only_collected(obj: Object | None, old: Object | None) -> bool:
    """Whether a write changes only what the garbage collector changes."""
    if obj is None or old is None:
        return False
    same = {
        name: getattr(old.metadata, name)
        for name in ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    }
    return replace(obj, metadata=replace(obj.metadata, **same)) == old


def _gathers(obj: Object | None) -> bool:
    if not isinstance(obj, ClusterRole) or obj.aggregationRule is None:
        return False
    return bool(obj.aggregationRule.clusterRoleSelectors)


def _complaint(user: User, missing: Iterable[PolicyRule]) -> str:
    lines = sorted({_compact(rule) for rule in compacted(missing)})
    return (
        f"user {json.dumps(user.name)} (groups={_quoted(user.groups)}) is attempting to grant "
        "RBAC permissions not currently held:\n" + "\n".join(lines)
    )


def compacted(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Single permissions on the same thing as one rule with several verbs; paths stay apart."""
    merged: dict[tuple[Sequence[str], ...], list[str]] = {}
    paths: list[PolicyRule] = []
    for part in parts:
        if part.nonResourceURLs:
            paths.append(part)
            continue
        thing = part.apiGroups, part.resources, part.resourceNames
        merged.setdefault(thing, []).extend(part.verbs)
    return [
        *paths,
        *(
            PolicyRule(apiGroups=groups, resources=resources, resourceNames=names, verbs=verbs)
            for (groups, resources, names), verbs in merged.items()
        ),
    ]


def _compact(rule: PolicyRule) -> str:
    fields = {
        "APIGroups": rule.apiGroups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.nonResourceURLs,
        "ResourceNames": rule.resourceNames,
        "Verbs": rule.verbs,
    }
    return "{" + ", ".join(f"{k}:{_quoted(v)}" for k, v in fields.items() if v) + "}"


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "]"
