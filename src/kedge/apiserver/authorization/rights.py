"""Rights: the rules of one role, compiled so that a question costs a few dictionary look-ups."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Final

from msgspec.structs import replace

from kedge.api.rbac_v1.role import PolicyRule
from kedge.machinery.short_cache import SHORT

Names = frozenset[str] | set[str] | None
"""The objects a right is confined to; None for all."""
Key = tuple[str, str]
"""An API group and a resource as a rule spells them, either perhaps with a star."""

_NONE: Final[frozenset[str]] = frozenset()


def keys_of(group: str, resource: str) -> tuple[Key, ...]:
    """Every spelling in a rule that means this resource, the exact one first."""
    # Reviews ask about texts of any length.
    is_short = len(group) + len(resource) <= SHORT
    return _cached_keys(group, resource) if is_short else _keys(group, resource)


def _keys(group: str, resource: str) -> tuple[Key, ...]:
    spelled = [resource, "*"]
    if "/" in resource:
        spelled.append("*/" + resource.partition("/")[2])
    return tuple((g, r) for r in dict.fromkeys(spelled) for g in dict.fromkeys((group, "*")))


_cached_keys = lru_cache(4096)(_keys)

MOST_ENTRIES: Final = 20_000
"""How many single permissions of one role are looked up by key.

A rule stands for every combination of its groups, resources, verbs and names: four kilobytes with
two hundred of each are eight million permissions, ten kilobytes kept the server busy for good, and
again after each start. Rules beyond this number are looked at one by one, as upstream looks at all
of them, so that a role costs as much as it is long."""


class Rights:
    """The permissions of one role. No rule denies, so their order does not matter."""

    __slots__ = ("_paths", "_prefixes", "_resources", "_starred", "_wide", "rules")

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._resources: dict[Key, dict[str, Names]] = {}
        self._wide: list[_WideRule] = []
        self._paths: dict[str, list[frozenset[str]]] = {}
        self._prefixes: list[tuple[str, frozenset[str]]] = []
        room = MOST_ENTRIES
        for rule in self.rules:
            size = _resource_permissions(rule)
            if size > room:
                self._wide.append(_WideRule(rule))
            else:
                room -= size
                self._take(rule)
            self._take_paths(rule)
        self._starred = any("*" in group or "*" in name for group, name in self._resources)

    def _take(self, rule: PolicyRule) -> None:
        names = frozenset(rule.resourceNames) or None
        for key in product(rule.apiGroups, rule.resources):
            verbs = self._resources.setdefault(key, {})
            for verb in rule.verbs:
                verbs[verb] = _united(verbs.get(verb, _NONE), names)

    def _take_paths(self, rule: PolicyRule) -> None:
        allowed = frozenset(rule.verbs)
        for path in rule.nonResourceURLs:
            if path.endswith("*"):
                self._prefixes.append((path.rstrip("*"), allowed))
            else:
                self._paths.setdefault(path, []).append(allowed)

    def allow(self, keys: tuple[Key, ...], verb: str, name: str) -> bool:
        """Whether a verb may be used on the object of this name, or (if empty) on no one object."""
        resources = self._resources
        for key in keys if self._starred else keys[:1]:
            if key in resources:
                verbs = resources[key]
                names = verbs.get(verb, _NONE)
                if names is None or name in names:
                    return True
                names = verbs.get("*", _NONE)
                if names is None or name in names:
                    return True
        return any(rule.allows(keys, verb, name) for rule in self._wide)

    def allow_all(self, keys: tuple[Key, ...], verb: str) -> bool:
        """Whether a verb may be used on every object there is and will be."""
        found = (self._resources.get(key) for key in keys)
        if any(rule.names is None and rule.allows(keys, verb, "") for rule in self._wide):
            return True
        return any(
            verbs.get(spelled, _NONE) is None
            for verbs in found
            if verbs is not None
            for spelled in (verb, "*")
        )

    def allow_path(self, path: str, verb: str) -> bool:
        """Whether a path that is no resource may be used; a star at its end is one of the rule."""
        for verbs in self._paths.get(path, ()):
            if verb in verbs or "*" in verbs:
                return True
        for prefix, verbs in self._prefixes:
            if path.startswith(prefix) and (verb in verbs or "*" in verbs):
                return True
        return False


class _WideRule:
    """A rule that is not taken apart: each question is put to its sets."""

    __slots__ = ("_groups", "_resources", "_verbs", "names")

    def __init__(self, rule: PolicyRule) -> None:
        self._groups = frozenset(rule.apiGroups)
        self._resources = frozenset(rule.resources)
        self._verbs = frozenset(rule.verbs)
        self.names: Names = frozenset(rule.resourceNames) or None

    def allows(self, keys: tuple[Key, ...], verb: str, name: str) -> bool:
        if verb not in self._verbs and "*" not in self._verbs:
            return False
        if self.names is not None and name not in self.names:
            return False
        return any(group in self._groups and own in self._resources for group, own in keys)


def _resource_permissions(rule: PolicyRule) -> int:
    """How many single permissions for resources a rule stands for."""
    return (
        len(rule.apiGroups)
        * len(rule.resources)
        * max(len(rule.verbs), 1)
        * max(len(rule.resourceNames), 1)
    )


def _united(some: Names, more: Names) -> Names:
    """Both together. The first is a set of this role's own once it is not just one rule's: many
    rules with a name each are united without a copy for each of them."""
    if some is None or more is None:
        return None
    if not some:
        return more
    if isinstance(some, frozenset):
        return {*some, *more}
    some.update(more)
    return some


NO_RIGHTS: Final = Rights(())


MOST_COMPARED: Final = 10_000
"""Most single permissions of a role whose author must hold all of them. The largest default role
has a tenth of that."""


class TooManyPermissions(Exception):
    """Rules stand for more permissions than can be compared one by one."""


def uncovered(held: Iterable[Rights], rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the single permissions in `rules` that none of the rights held cover."""
    rights, distinct = tuple(held), [_distinct(rule) for rule in rules]
    if sum(map(_permissions, distinct)) > MOST_COMPARED:
        raise TooManyPermissions(
            f"the rules stand for more than {MOST_COMPARED} single permissions, which are too many "
            "to compare with those currently held"
        )
    return [part for rule in distinct for part in broken_down(rule) if not _covered(rights, part)]


def _distinct(rule: PolicyRule) -> PolicyRule:
    """A rule without what it says twice."""
    return PolicyRule(
        apiGroups=tuple(dict.fromkeys(rule.apiGroups)),
        resources=tuple(dict.fromkeys(rule.resources)),
        verbs=tuple(dict.fromkeys(rule.verbs)),
        resourceNames=tuple(dict.fromkeys(rule.resourceNames)),
        nonResourceURLs=tuple(dict.fromkeys(rule.nonResourceURLs)),
    )


def _permissions(rule: PolicyRule) -> int:
    return _resource_permissions(rule) + len(rule.nonResourceURLs) * len(rule.verbs)


def broken_down(rule: PolicyRule) -> Iterator[PolicyRule]:
    """A rule as rules of one verb, one group, one resource and at most one name each."""
    for group, resource, verb in product(rule.apiGroups, rule.resources, rule.verbs):
        single = PolicyRule(apiGroups=(group,), resources=(resource,), verbs=(verb,))
        if not rule.resourceNames:
            yield single
        for name in rule.resourceNames:
            yield replace(single, resourceNames=(name,))
    for path, verb in product(rule.nonResourceURLs, rule.verbs):
        yield PolicyRule(nonResourceURLs=(path,), verbs=(verb,))


def _covered(held: tuple[Rights, ...], part: PolicyRule) -> bool:
    (verb,) = part.verbs
    if part.nonResourceURLs:
        (path,) = part.nonResourceURLs
        return any(rights.allow_path(path, verb) for rights in held)
    # A star asked for is found only where a star was given: it is looked up like any other text.
    keys = keys_of(part.apiGroups[0], part.resources[0])
    if not part.resourceNames:
        return any(rights.allow_all(keys, verb) for rights in held)
    return any(rights.allow(keys, verb, part.resourceNames[0]) for rights in held)
