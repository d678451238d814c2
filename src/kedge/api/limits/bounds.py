"""NamespaceLimits: all LimitRanges of one namespace, compiled after each change."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from kedge.api.core_v1.limit_range import (
    CONTAINER,
    POD,
    LimitRange,
    LimitRangeItem,
    LimitRangeSelector,
    selectable_fields,
)
from kedge.api.label_selector import compiled
from kedge.api.model import Object
from kedge.machinery import selectors
from kedge.machinery.quantity import Quantity

Amounts = Mapping[str, Quantity]
Bound = Literal["request", "limit"]


class LimitRangeScope(msgspec.Struct, frozen=True):
    """The selector of an item; all conditions must hold."""

    labels: selectors.LabelRequirements
    fields: selectors.FieldSelector
    known_fields: Mapping[str, Callable[[Any], str]]
    name: str
    uid: str
    container: str

    @classmethod
    def of(cls, type_: str, selector: LimitRangeSelector) -> "LimitRangeScope":
        return cls(
            labels=compiled(selector.labels),
            fields=selectors.parse_fields(selector.fieldSelector),
            known_fields=selectable_fields(type_),
            name=selector.name,
            uid=selector.uid,
            container=selector.containerName,
        )

    def covers(self, obj: Object) -> bool:
        """Whether the item is about a pod or claim, its containers aside."""
        meta = obj.metadata
        if self.name and self.name != meta.name:
            return False
        if self.uid and self.uid != meta.uid:
            return False
        if not self.labels.matches(meta.labels):
            return False
        return self.fields.matches(lambda name: self.known_fields[name](obj))

    def covers_container(self, name: str) -> bool:
        return not self.container or self.container == name


class LimitRangeRule(msgspec.Struct, frozen=True):
    """One item of a LimitRange, its amounts in the order of their names."""

    limit_range: str
    """The name of the LimitRange."""
    type: str
    restriction: LimitRangeScope | None
    least: Amounts
    most: Amounts
    ratio: Amounts
    default: Amounts
    default_request: Amounts

    @classmethod
    def of(cls, limit_range: str, item: LimitRangeItem) -> "LimitRangeRule":
        selector = item.selector
        return cls(
            limit_range=limit_range,
            type=item.type,
            restriction=None if selector is None else LimitRangeScope.of(item.type, selector),
            least=_sorted(item.min),
            most=_sorted(item.max),
            ratio=_sorted(item.maxLimitRequestRatio),
            default=_sorted(item.default),
            default_request=_sorted(item.defaultRequest),
        )

    def covers(self, obj: Object) -> bool:
        return self.restriction is None or self.restriction.covers(obj)

    def covers_container(self, name: str) -> bool:
        return self.restriction is None or self.restriction.covers_container(name)

    @property
    def may_default(self) -> bool:
        """Whether containers can get anything from it; a uid is not known when they do."""
        if self.restriction is not None and self.restriction.uid:
            return False
        return bool(self.default or self.default_request)


class NarrowestBounds(NamedTuple):
    """The narrowest of all bounds on one resource, in nanos, for quick comparisons."""

    resource: str
    least: int | None
    most: int | None
    ratio: int | None


Envelope = tuple[NarrowestBounds, ...]
"""The narrowest bounds on one type: what keeps within them need not be looked at again."""


def _envelope(rules: Iterable[LimitRangeRule]) -> Envelope:
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    ratio: dict[str, int] = {}
    for rule in rules:
        for name, amount in rule.least.items():
            least[name] = max(amount.nanos, least.get(name, amount.nanos))
        for bounds, narrowest in ((rule.most, most), (rule.ratio, ratio)):
            for name, amount in bounds.items():
                narrowest[name] = min(amount.nanos, narrowest.get(name, amount.nanos))
    names = sorted({*least, *most, *ratio})
    return tuple(NarrowestBounds(n, least.get(n), most.get(n), ratio.get(n)) for n in names)


class ContainerDefaults:
    """Default requests and limits of containers, by resource name."""

    __slots__ = ("limits", "requests", "sources")

    def __init__(self, rules: Iterable[LimitRangeRule]) -> None:
        """Of several rules the first that speaks of a resource counts."""
        requests: dict[str, Quantity] = {}
        limits: dict[str, Quantity] = {}
        self.sources: dict[tuple[Bound, str], str] = {}
        """The LimitRange that each comes from."""
        for rule in rules:
            for name in rule.default_request.keys() - requests.keys():
                requests[name] = rule.default_request[name]
                self.sources["request", name] = rule.limit_range
            for name in rule.default.keys() - limits.keys():
                limits[name] = rule.default[name]
                self.sources["limit", name] = rule.limit_range
        self.requests = _sorted(requests)
        self.limits = _sorted(limits)

    def of(self, bound: Bound) -> Amounts:
        return self.requests if bound == "request" else self.limits

    def to(self, container: str) -> "ContainerDefaults":
        """Return the defaults of a container: the same for all containers."""
        return self


class NamespaceLimits(msgspec.Struct, frozen=True, dict=True):
    """The rules of one namespace, ordered by the name of their LimitRange, then by position."""

    rules: tuple[LimitRangeRule, ...]

    @cached_property
    def containers(self) -> Envelope:
        return _envelope(self.of_type(CONTAINER))

    @cached_property
    def pods(self) -> Envelope:
        return _envelope(self.of_type(POD))

    @cached_property
    def default_rules(self) -> tuple[LimitRangeRule, ...]:
        """The rules from which containers get something."""
        return tuple(rule for rule in self.of_type(CONTAINER) if rule.may_default)

    @cached_property
    def defaults(self) -> ContainerDefaults | None:
        """The defaults of every container; None if they depend on the pod or container."""
        selective = any(rule.restriction is not None for rule in self.default_rules)
        return None if selective else ContainerDefaults(self.default_rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of_type(self, type_: str) -> Iterator[LimitRangeRule]:
        return (rule for rule in self.rules if rule.type == type_)


def bounds_of(ranges: Iterable[LimitRange]) -> NamespaceLimits:
    """The bounds that LimitRanges of one namespace set, in whatever order they come."""
    named = sorted(ranges, key=lambda each: each.metadata.name)
    return NamespaceLimits(
        tuple(
            LimitRangeRule.of(each.metadata.name, item)
            for each in named
            for item in each.spec.limits
        )
    )


def _sorted(amounts: Amounts) -> Amounts:
    return {name: amounts[name] for name in sorted(amounts)}
