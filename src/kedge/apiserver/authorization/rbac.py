"""RBAC: the roles of each subject, indexed by subject and updated one object at a time."""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kedge.api.rbac_v1 import cluster_role, cluster_role_binding, role_binding
from kedge.api.rbac_v1.role import GROUP, PolicyRule
from kedge.api.rbac_v1.role import RESOURCE as ROLES
from kedge.api.rbac_v1.role_binding import GROUP_KIND, SERVICE_ACCOUNT, USER, RoleRef, Subject
from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.cache_follower import follow, place_of
from kedge.apiserver.authorization.rights import NO_RIGHTS, Rights, keys_of
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import Item, ResourceCache, WatchCache

EVERYWHERE: Final = ""
"""The place of cluster roles and of their bindings: no namespace."""

NO_OPINION: Final = Decision(False)

REMEMBERED: Final = 4096
"""Users, each in one namespace, whose roles are kept at hand."""


class RoleName(NamedTuple):
    """A role, or (without a namespace) a cluster role."""

    namespace: str
    name: str

    def __str__(self) -> str:
        kind = "role" if self.namespace else "clusterrole"
        return f"{kind}.{GROUP} {json.dumps(self.name)}"


class _Role:
    """A place that bindings point to: they need not change when the role does, or comes later."""

    __slots__ = ("exists", "holders", "name", "rights")

    def __init__(self, name: RoleName) -> None:
        self.name = name
        self.rights = NO_RIGHTS
        self.exists = False
        self.holders = 0


class _Grant(NamedTuple):
    """One binding as one of its subjects sees it."""

    role: _Role
    decision: Decision
    """The answer if the role allows something."""


BindingName = tuple[str, str]
"""Namespace (empty for cluster role bindings) and name."""
_Grants = dict[BindingName, _Grant]


class Policy:
    """All roles and bindings.

    It depends on no cache and no server: its owner puts the objects in.
    """

    def __init__(self) -> None:
        self._roles: dict[RoleName, _Role] = {}
        self._users: dict[str, dict[str, _Grants]] = {}
        """By user and namespace; service accounts are users."""
        self._groups: dict[str, dict[str, _Grants]] = {}
        self._bindings: dict[BindingName, tuple[_Role, list[Subject]]] = {}
        self._remembered: dict[tuple[str, tuple[str, ...], str], tuple[_Grant, ...]] = {}
        """The grants of a user in a namespace, cached until a binding changes."""

    # Roles and bindings.

    def put_role(self, name: RoleName, rules: Sequence[PolicyRule]) -> None:
        found = self._role(name)
        found.rights = Rights(rules)
        found.exists = True

    def drop_role(self, name: RoleName) -> None:
        found = self._role(name)
        found.rights = NO_RIGHTS
        found.exists = False
        self._forget(found)

    def put_binding(
        self, namespace: str, name: str, ref: RoleRef, subjects: Iterable[Subject]
    ) -> None:
        """Give a role in one namespace, or everywhere."""
        self.drop_binding(namespace, name)
        given = self._role(RoleName(namespace if ref.kind == "Role" else EVERYWHERE, ref.name))
        given.holders += 1
        held = []
        for subject in subjects:
            grants = self._grants_of(subject, namespace)
            # Upstream names the first of several subjects that are one and the same.
            if grants is not None and (namespace, name) not in grants:
                why = _reason(namespace, name, ref, subject)
                grants[namespace, name] = _Grant(given, Decision(True, why))
                held.append(subject)
        self._bindings[namespace, name] = given, held

    def drop_binding(self, namespace: str, name: str) -> None:
        given, held = self._bindings.pop((namespace, name), (None, []))
        self._remembered.clear()
        for subject in held:
            index, who = self._place(subject, namespace)
            grants = index[who][namespace]
            del grants[namespace, name]
            if not grants:
                del index[who][namespace]
            if not index[who]:
                del index[who]
        if given is not None:
            given.holders -= 1
            self._forget(given)

    def _role(self, name: RoleName) -> _Role:
        found = self._roles.get(name)
        if found is None:
            found = self._roles[name] = _Role(name)
        return found

    def _forget(self, role: _Role) -> None:
        if not role.exists and not role.holders:
            self._roles.pop(role.name, None)

    def _grants_of(self, subject: Subject, namespace: str) -> _Grants | None:
        index, who = self._place(subject, namespace)
        return index.setdefault(who, {}).setdefault(namespace, {}) if who else None

    def _place(self, subject: Subject, namespace: str) -> tuple[dict[str, dict[str, _Grants]], str]:
        """Return the index of a subject and its key there; empty if it matches no user."""
        if subject.kind == SERVICE_ACCOUNT:
            home = subject.namespace or namespace
            return self._users, f"system:serviceaccount:{home}:{subject.name}" if home else ""
        if subject.kind == USER:
            return self._users, subject.name
        return self._groups, subject.name if subject.kind == GROUP_KIND else ""

    # Decisions.

    def decide(self, attributes: Attributes) -> Decision:
        """Allowed by some rule, or no opinion."""
        verb, name, path = attributes.verb, attributes.name, attributes.path
        held = self._held(attributes.user, attributes.namespace)
        if attributes.plural:
            keys = keys_of(attributes.group, attributes.resource)
            for role, decision in held:
                if role.rights.allow(keys, verb, name):
                    return decision
        else:
            for role, decision in held:
                if role.rights.allow_path(path, verb):
                    return decision
        missing = [role.name for role, _ in held if not role.exists]
        return Decision(False, f"RBAC: {not_found(missing)}") if missing else NO_OPINION

    def rights_of(self, user: User, namespace: str) -> list[Rights]:
        """All that a user holds in a namespace."""
        return [role.rights for role, _ in self._held(user, namespace)]

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Every rule that applies to a user in a namespace."""
        return [rule for rights in self.rights_of(user, namespace) for rule in rights.rules]

    def rules_of(self, name: RoleName) -> Sequence[PolicyRule] | None:
        """The rules of one role; None if there is no such role."""
        found = self._roles.get(name)
        return found.rights.rules if found is not None and found.exists else None

    def missing_roles(self, user: User, namespace: str) -> list[RoleName]:
        """Roles that the user is bound to and that do not exist."""
        return [role.name for role, _ in self._held(user, namespace) if not role.exists]

    def _held(self, user: User, namespace: str) -> tuple[_Grant, ...]:
        key = user.name, user.groups, namespace
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            found = self._remembered[key] = self._gathered(user, namespace)
        return found

    def _gathered(self, user: User, namespace: str) -> tuple[_Grant, ...]:
        """Return the grants of a user and its groups, each role once, namespaced bindings first."""
        subjects = [self._users.get(user.name), *(self._groups.get(who) for who in user.groups)]
        by_role: dict[_Role, _Grant] = {}
        for place in dict.fromkeys((namespace, EVERYWHERE)):
            for held in filter(None, subjects):
                for grant in held.get(place, {}).values():
                    by_role.setdefault(grant.role, grant)
        return tuple(by_role.values())


def not_found(missing: Sequence[RoleName]) -> str:
    """Which roles are bound but do not exist, in Kubernetes' words."""
    return together([f"{name} not found" for name in sorted(missing)])


def together(errors: Sequence[str]) -> str:
    """Several errors as one, in the way of Kubernetes."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _reason(namespace: str, name: str, ref: RoleRef, subject: Subject) -> str:
    binding = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
    who = f'{subject.kind} "{subject.name}"'
    if subject.kind == SERVICE_ACCOUNT:
        who = f'{subject.kind} "{subject.name}/{subject.namespace or namespace}"'
    return f'RBAC: allowed by {binding} of {ref.kind} "{ref.name}" to {who}'


class RbacAuthorizer:
    """A policy that follows the roles and bindings of a server."""

    def __init__(self, cache: WatchCache) -> None:
        self.policy = Policy()
        follow(cache.of(ROLES), self._take_role)
        follow(cache.of(cluster_role.RESOURCE), self._take_role)
        follow(cache.of(role_binding.RESOURCE), self._take_binding)
        follow(cache.of(cluster_role_binding.RESOURCE), self._take_binding)

    def _take_role(self, objects: ResourceCache, item: Item) -> None:
        name = RoleName(*place_of(objects, item))
        if objects.get(item.key) is None:
            self.policy.drop_role(name)
        else:
            self.policy.put_role(name, objects.resource.decode(item.body).rules)

    def _take_binding(self, objects: ResourceCache, item: Item) -> None:
        namespace, name = place_of(objects, item)
        if objects.get(item.key) is None:
            self.policy.drop_binding(namespace, name)
        else:
            found = objects.resource.decode(item.body)
            self.policy.put_binding(namespace, name, found.roleRef, found.subjects)
