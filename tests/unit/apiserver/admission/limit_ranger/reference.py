"""A second reading of LimitRanger's rules, slow and simple: what must become of a pod.

It shares no code with the server, not even its quantities, so that both are wrong together only
if both have misread the rules.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import chain
from math import ceil, floor
from typing import Any

ANNOTATION = "kubernetes.io/limit-ranger"

Document = Mapping[str, Any]

# Amounts.

DECIMAL = {suffix: Fraction(1000) ** (i - 3) for i, suffix in enumerate(["n", "u", "m", ""])}
DECIMAL |= {suffix: Fraction(1000) ** (i + 1) for i, suffix in enumerate("kMGTPE")}
BINARY = {f"{suffix}i": Fraction(1024) ** (i + 1) for i, suffix in enumerate("KMGTPE")}
LARGEST_BINARY = Fraction(2**63 - 1)


@dataclass(frozen=True)
class Amount:
    """An exact number, and the suffixes it is printed with: decimal, binary or exponent."""

    exact: Fraction
    suffixes: str = "decimal"

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.exact + other.exact, (self if self.exact else other).suffixes)

    def __str__(self) -> str:
        if self.exact == 0:
            return "0"
        if self.suffixes == "binary" and self.exact.denominator == 1 and abs(self.exact) >= 1024:
            return self._largest({"": Fraction(1)} | BINARY)
        if self.suffixes == "exponent":
            powers = {f"e{n}": Fraction(10) ** n for n in range(-9, 31, 3)}
            return self._largest(powers).removesuffix("e0")
        return self._largest(DECIMAL)

    def _largest(self, units: Mapping[str, Fraction]) -> str:
        """As a whole number of the largest unit with which there is one."""
        whole = {s: self.exact / u for s, u in units.items() if (self.exact / u).denominator == 1}
        suffix = max(whole, key=lambda s: units[s])
        return f"{whole[suffix]}{suffix}"


Amounts = Mapping[str, Amount]


@cache
def amount(written: object) -> Amount:
    """An amount of a resource list: exact to the thousandth, rounded away from zero."""
    split = re.fullmatch(r"([+-]?[0-9.]+)([a-zA-Z]*)([+-]?[0-9]*)", str(written))
    assert split is not None, written
    number, suffix, power = Fraction(split[1]), split[2], split[3]
    if suffix in ("e", "E") and power:
        found = Amount(number * Fraction(10) ** int(power), "exponent")
    elif suffix in BINARY:
        exact = number * BINARY[suffix]
        found = Amount(max(-LARGEST_BINARY, min(exact, LARGEST_BINARY)), "binary")
    else:
        found = Amount(number * DECIMAL[suffix])
    away = ceil if found.exact > 0 else floor
    return Amount(Fraction(away(found.exact * 1000), 1000), found.suffixes)


def amounts(written: Document | None) -> Amounts:
    return {name: amount(text) for name, text in (written or {}).items()}


def texts(given: Amounts) -> dict[str, str]:
    return {name: str(each) for name, each in given.items()}


def total(lists: Iterable[Amounts]) -> dict[str, Amount]:
    """What all of these make together."""
    found: dict[str, Amount] = {}
    for each in lists:
        for name, more in each.items():
            found[name] = found[name] + more if name in found else more
    return found


def most(lists: Iterable[Amounts]) -> dict[str, Amount]:
    """The greatest of each; of equal ones the first."""
    found: dict[str, Amount] = {}
    for each in lists:
        for name, other in each.items():
            if name not in found or other.exact > found[name].exact:
                found[name] = other
    return found


# LimitRanges.


@dataclass
class Item:
    """An item of a LimitRange as it is stored."""

    type: str
    min: Amounts
    max: Amounts
    default: Amounts
    defaultRequest: Amounts  # noqa: N815
    ratio: Amounts
    selector: Document


def item(posted: Document) -> Item:
    least, greatest = amounts(posted.get("min")), amounts(posted.get("max"))
    limits, requests = amounts(posted.get("default")), amounts(posted.get("defaultRequest"))
    if posted["type"] == "Container":
        limits = {**greatest, **limits}
        requests = {**limits, **requests}
        requests = {**least, **requests}
    ratio = amounts(posted.get("maxLimitRequestRatio"))
    selector = posted.get("selector") or {}
    return Item(posted["type"], least, greatest, limits, requests, ratio, selector)


def is_for(selector: Document, meta: Document, container: str) -> bool:
    """Whether an item is for a container of the pod, or for the pod if no container is named.

    On creation nobody can have known the uid, so an item for one uid is for nobody.
    """
    labels = meta.get("labels", {})
    conditions = [
        selector.get("name", meta["name"]) == meta["name"],
        selector.get("containerName", container) == container,
        "uid" not in selector,
        *(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()),
        *(expressed(each, labels) for each in selector.get("matchExpressions", ())),
    ]
    for term in filter(None, selector.get("fieldSelector", "").split(",")):
        field_, unequal, value = re.split("(!?=)=?", term)
        assert field_ == "metadata.name"
        conditions.append((meta["name"] == value) == (unequal == "="))
    return all(conditions)


def expressed(requirement: Document, labels: Document) -> bool:
    there, values = requirement["key"] in labels, requirement.get("values", ())
    among = labels.get(requirement["key"]) in values
    answers = {"In": among, "NotIn": not among, "Exists": there, "DoesNotExist": not there}
    return answers[requirement["operator"]]


# Pods.


@dataclass
class Box:
    """Whatever has requests and limits: a container, a pod, a claim."""

    name: str = ""
    requests: dict[str, Amount] = field(default_factory=dict)
    limits: dict[str, Amount] = field(default_factory=dict)
    sidecar: bool = False
    set_requests: set[str] = field(default_factory=set)
    """What LimitRanger has set."""
    set_limits: set[str] = field(default_factory=set)


@dataclass
class Pod:
    meta: Document
    containers: list[Box]
    init: list[Box]
    own: Box | None
    """The resources of the pod itself."""


def box(posted: Document) -> Box:
    given = posted.get("resources") or {}
    made = Box(posted.get("name", ""), dict(amounts(given.get("requests"))))
    made.limits = dict(amounts(given.get("limits")))
    made.sidecar = posted.get("restartPolicy") == "Always"
    return made


def pod(posted: Document) -> Pod:
    """A pod as it is before admission: requests follow from limits."""
    spec = posted["spec"]
    read = Pod(
        posted["metadata"],
        [box(each) for each in spec["containers"]],
        [box(each) for each in spec.get("initContainers", ())],
        box(spec) if spec.get("resources") else None,
    )
    for each in read.containers + read.init:
        each.requests = {**each.limits, **each.requests}
    if read.own is not None:
        complete_own(read, read.own)
    return read


def complete_own(whole: Pod, own: Box) -> None:
    """The requests of a pod itself follow from its containers, else from its own limits."""
    if own.limits or own.requests:
        for name, limit in aggregate(whole, lambda each: each.limits).items():
            if name.startswith("hugepages-") and name not in own.requests:
                own.limits.setdefault(name, limit)
    if own.limits:
        for name, request in aggregate(whole, lambda each: each.requests).items():
            if name in ("cpu", "memory"):
                own.requests.setdefault(name, request)
        own.requests = {**own.limits, **own.requests}


def aggregate(whole: Pod, part: Callable[[Box], Amounts]) -> dict[str, Amount]:
    """What the containers of a pod need at once, at the worst moment."""
    sidecars = [each for each in whole.init if each.sidecar]
    running = total(map(part, whole.containers + sidecars))
    moments = [running]
    for position, starting in enumerate(whole.init):
        before = [each for each in whole.init[:position] if each.sidecar]
        if starting.sidecar:
            moments.append(total(map(part, [*before, starting])))
        else:
            moments.append(total([part(starting), total(map(part, before))]))
    return most(moments)


def effective(whole: Pod) -> Box:
    """What the constraints for pods look at."""
    found = Box("", aggregate(whole, lambda b: b.requests), aggregate(whole, lambda b: b.limits))
    for name in ("cpu", "memory"):
        if whole.own is not None and name in whole.own.requests:
            found.requests[name] = whole.own.requests[name]
        if whole.own is not None and name in whole.own.limits:
            found.limits[name] = whole.own.limits[name]
    return found


# The mutating pass.


def give_defaults(whole: Pod, ranges: Iterable[list[Item]]) -> None:
    for items in ranges:
        for each in items:
            for container in whole.containers + whole.init:
                chosen = is_for(each.selector, whole.meta, container.name)
                if each.type == "Container" and chosen:
                    complete(container, each)


def complete(container: Box, bounds: Item) -> None:
    for name, limit in bounds.default.items():
        if name not in container.limits:
            container.limits[name] = limit
            container.set_limits.add(name)
    for name, request in bounds.defaultRequest.items():
        if name not in container.requests:
            container.requests[name] = request
            container.set_requests.add(name)


def annotation(whole: Pod) -> str:
    """What LimitRanger says it did; empty if it did nothing."""
    parts = []
    for sort, boxes in (("container", whole.containers), ("init container", whole.init)):
        for each in boxes:
            if each.set_requests:
                parts.append(
                    f"{', '.join(sorted(each.set_requests))} request for {sort} {each.name}"
                )
            if each.set_limits:
                parts.append(f"{', '.join(sorted(each.set_limits))} limit for {sort} {each.name}")
    return f"LimitRanger plugin set: {'; '.join(parts)}" if parts else ""


# Validation of the pod, as far as amounts go: (field, what is wrong with it).

Fault = tuple[str, str]


def invalid(path: str, shown: Amount, why: str) -> Fault:
    return path, f'Invalid value: "{shown}": {why}'


def faults(whole: Pod) -> Iterator[Fault]:
    for i, each in enumerate(whole.containers):
        yield from box_faults(f"spec.containers[{i}].resources", each)
    for i, each in enumerate(whole.init):
        yield from box_faults(f"spec.initContainers[{i}].resources", each)
    if whole.own is not None:
        yield from box_faults("spec.resources", whole.own)
        yield from own_faults(whole, whole.own)


def box_faults(path: str, each: Box) -> Iterator[Fault]:
    for name, request in each.requests.items():
        limit = each.limits.get(name)
        whole = "/" in name or name.startswith("hugepages-")
        if limit is None and whole:
            why = "Required value: Limit must be set for non overcommitable resources"
            yield f"{path}.limits", why
        elif limit is not None and whole and request.exact != limit.exact:
            why = f"must be equal to {name} limit of {limit}"
            yield invalid(f"{path}.requests", request, why)
        elif limit is not None and request.exact > limit.exact:
            why = f"must be less than or equal to {name} limit of {limit}"
            yield invalid(f"{path}.requests", request, why)
    named = {*each.requests, *each.limits}
    if any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        yield path, "Forbidden: HugePages require cpu or memory"


def own_faults(whole: Pod, own: Box) -> Iterator[Fault]:
    for name, needed in aggregate(whole, lambda each: each.requests).items():
        if name in own.requests and needed.exact > own.requests[name].exact:
            why = f"must be greater than or equal to aggregate container requests of {needed}"
            yield (
                f"spec.resources.requests[{name}]",
                f'Invalid value: "{own.requests[name]}": {why}',
            )
    for name, needed in aggregate(whole, lambda each: each.limits).items():
        huge = name.startswith("hugepages-") and name in own.limits
        if huge and needed.exact > own.limits[name].exact:
            why = f"must be greater than or equal to aggregate container limits of {needed}"
            yield invalid(f"spec.resources.limits[{name}]", own.limits[name], why)
    for i, each in enumerate(whole.containers):
        for name, limit in each.limits.items():
            if name in own.limits and limit.exact > own.limits[name].exact:
                why = f"must be less than or equal to pod limits of {own.limits[name]}"
                yield (
                    f"spec.resources.containers[{i}][{name}].limits",
                    f'Invalid value: "{limit}": {why}',
                )


# The validating pass.


def violations(whole: Pod, ranges: Iterable[list[Item]]) -> list[str]:
    """Every message once, in order."""
    said: list[str] = []
    for bounds in chain.from_iterable(ranges):
        asking = {"Container": whole.containers + whole.init, "Pod": [effective(whole)]}
        for each in asking.get(bounds.type, []):
            if is_for(bounds.selector, whole.meta, each.name):
                said += broken(bounds, each)
    return list(dict.fromkeys(said))


def claim_violations(requests: Document, ranges: Iterable[list[Item]]) -> list[str]:
    said: list[str] = []
    asked = Box(requests=dict(amounts(requests)))
    for bounds in chain.from_iterable(ranges):
        if bounds.type == "PersistentVolumeClaim":
            said += [below(bounds.type, n, bounds.min[n], asked) for n in sorted(bounds.min)]
            said += [claim_above(n, bounds.max[n], asked) for n in sorted(bounds.max)]
    return list(dict.fromkeys(filter(None, said)))


def broken(bounds: Item, asked: Box) -> list[str]:
    said = [below(bounds.type, name, bounds.min[name], asked) for name in sorted(bounds.min)]
    said += [above(bounds.type, name, bounds.max[name], asked) for name in sorted(bounds.max)]
    said += [out_of_ratio(bounds.type, n, bounds.ratio[n], asked) for n in sorted(bounds.ratio)]
    return [message for message in said if message]


def below(type_: str, name: str, least: Amount, asked: Box) -> str:
    request, limit = asked.requests.get(name), asked.limits.get(name)
    start = f"minimum {name} usage per {type_} is {least}"
    if request is None:
        return f"{start}.  No request is specified"
    if request.exact < least.exact:
        return f"{start}, but request is {request}"
    if limit is not None and limit.exact < least.exact:
        return f"{start}, but limit is {limit}"
    return ""


def above(type_: str, name: str, greatest: Amount, asked: Box) -> str:
    request, limit = asked.requests.get(name), asked.limits.get(name)
    start = f"maximum {name} usage per {type_} is {greatest}"
    if limit is None:
        return f"{start}.  No limit is specified"
    if limit.exact > greatest.exact:
        return f"{start}, but limit is {limit}"
    if request is not None and request.exact > greatest.exact:
        return f"{start}, but request is {request}"
    return ""


def claim_above(name: str, greatest: Amount, asked: Box) -> str:
    request = asked.requests.get(name)
    start = f"maximum {name} usage per PersistentVolumeClaim is {greatest}"
    if request is None:
        return f"{start}.  No request is specified"
    return f"{start}, but request is {request}" if request.exact > greatest.exact else ""


def out_of_ratio(type_: str, name: str, ratio: Amount, asked: Box) -> str:
    request, limit = asked.requests.get(name), asked.limits.get(name)
    start = f"{name} max limit to request ratio per {type_} is {ratio}"
    if request is None or request.exact == 0:
        return f"{start}, but no request is specified or request is 0"
    if limit is None or limit.exact == 0:
        return f"{start}, but no limit is specified or limit is 0"
    provided = limit.exact / request.exact
    if provided > ratio.exact:
        return f"{start}, but provided ratio is {float(provided):.6f}"
    return ""


# The whole.


@dataclass
class Outcome:
    """What must become of a pod that is created."""

    status: int
    resources: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    """Requests and limits of each container, if it is admitted."""
    annotation: str = ""
    faults: set[Fault] = field(default_factory=set)
    """Why it is invalid (422)."""
    messages: list[str] = field(default_factory=list)
    """Why it is forbidden (403)."""


def outcome(posted: Document, limit_ranges: Mapping[str, list[Document]]) -> Outcome:
    """What must become of a pod in a namespace with these LimitRanges, items by name."""
    ranges = [[item(each) for each in limit_ranges[name]] for name in sorted(limit_ranges)]
    whole = pod(posted)
    give_defaults(whole, ranges)
    if wrong := set(faults(whole)):
        return Outcome(422, faults=wrong)
    if said := violations(whole, ranges):
        return Outcome(403, messages=said)
    resources = {
        each.name: {"requests": texts(each.requests), "limits": texts(each.limits)}
        for each in whole.containers + whole.init
    }
    return Outcome(201, resources, annotation(whole))


def sentence(messages: list[str]) -> str:
    """Messages as one denial tells them."""
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
