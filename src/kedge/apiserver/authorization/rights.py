"""Rights: the rules of one role, compiled so that a question costs a few dictionary look-ups."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Final

from msgspec.structs import replace

from kedge.api.rbac_v1.role import PolicyRule

Names = frozenset[str] | None
"""The objects a right is confined to; None for all."""
Key = tuple[str, str]
"""An API group and a resource as a rule spells them, either perhaps with a star."""

_NONE: Final[frozenset[str]] = frozenset()


@lru_cache(4096)
def keys_of(group: str, resource: str) -> tuple[Key, ...]:
    """Every spelling in a rule that means this resource, the exact one first."""
    spelled = [resource, "*"]
    if "/" in resource:
        spelled.append("*/" + resource.partition("/")[2])
    return tuple((g, r) for r in dict.fromkeys(spelled) for g in dict.fromkeys((group, "*")))


class Rights:
    """What the rules of one role allow; none forbids, so their order does not matter."""

    __slots__ = ("_paths", "_prefixes", "_resources", "_starred", "rules")

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._resources: dict[Key, dict[str, Names]] = {}
        self._paths: dict[str, frozenset[str]] = {}
        self._prefixes: list[tuple[str, frozenset[str]]] = []
        for rule in self.rules:
            self._take(rule)
        self._starred = any("*" in group or "*" in name for group, name in self._resources)

    def _take(self, rule: PolicyRule) -> None:
        names = frozenset(rule.resourceNames) or None
        for key in product(rule.apiGroups, rule.resources):
            verbs = self._resources.setdefault(key, {})
            for verb in rule.verbs:
                verbs[verb] = _united(verbs.get(verb, _NONE), names)
        for path in rule.nonResourceURLs:
            if path.endswith("*"):
                self._prefixes.append((path.rstrip("*"), frozenset(rule.verbs)))
            else:
                self._paths[path] = self._paths.get(path, _NONE) | {*rule.verbs}

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
        return False

    def allow_all(self, keys: tuple[Key, ...], verb: str) -> bool:
        """Whether a verb may be used on every object there is and will be."""
        found = (self._resources.get(key) for key in keys)
        return any(
            verbs.get(spelled, _NONE) is None
            for verbs in found
            if verbs is not None
            for spelled in (verb, "*")
        )

    def allow_path(self, path: str, verb: str) -> bool:
        """Whether a path that is no resource may be used; a star at its end is one of the rule."""
        verbs = self._paths.get(path)
        if verbs is not None and (verb in verbs or "*" in verbs):
            return True
        for prefix, verbs in self._prefixes:
            if path.startswith(prefix) and (verb in verbs or "*" in verbs):
                return True
        return False


def _united(some: Names, more: Names) -> Names:
    return None if some is None or more is None else some | more


NO_RIGHTS: Final = Rights(())


def uncovered(held: Iterable[Rights], rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What rules give and none of the rights held do, taken apart into single permissions."""
    rights = tuple(held)
    return [part for rule in rules for part in broken_down(rule) if not _covered(rights, part)]


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
