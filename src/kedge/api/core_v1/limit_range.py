"""LimitRange: how little and how much the pods and claims of one namespace may ask for."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1 import resource_names
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.label_selector import compiled, validate_label_selector
from kedge.api.model import (
    EXTENSION,
    LabelSelector,
    LabelSelectorRequirement,
    Model,
    Object,
)
from kedge.api.presentation import Presentation, created_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names, selectors
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity, times

CONTAINER = "Container"
POD = "Pod"
CLAIM = "PersistentVolumeClaim"

_BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ONE = Quantity.from_value(1)


class LimitRangeSelector(Model):
    """Selects the pods, containers or claims of an item; all conditions must hold."""

    __atomic__ = True

    matchLabels: Mapping[str, str] = {}
    """Labels that the pod or claim must have, with exactly these values."""
    matchExpressions: Sequence[LabelSelectorRequirement] = ()
    """Further conditions on its labels."""
    fieldSelector: str = ""
    """Conditions on its fields, for instance spec.nodeName=one,status.phase!=Running."""
    name: str = ""
    """The name of the pod or claim."""
    uid: str = ""
    """The uid of the pod or claim. Nothing new has it yet, so such an item never sets defaults."""
    containerName: str = ""
    """The name of the container; only for type Container."""

    @property
    def labels(self) -> LabelSelector:
        return LabelSelector(matchLabels=self.matchLabels, matchExpressions=self.matchExpressions)


class LimitRangeItem(Model):
    """Bounds for every object of one type in the namespace."""

    __required__ = ("type",)

    default: Mapping[str, Quantity] = {}
    """Limits of containers that name none. Default the maximum."""
    defaultRequest: Mapping[str, Quantity] = {}
    """Requests of containers that name none. Default the default limit, else the minimum."""
    impliedDefaults: Annotated[bool | None, EXTENSION] = None
    """Kedge's own: false leaves out the defaults that follow from the maximum and minimum, so that
    containers get only what default and defaultRequest name. Only for type Container."""
    max: Mapping[str, Quantity] = {}
    """Greatest amount accepted."""
    maxLimitRequestRatio: Mapping[str, Quantity] = {}
    """How many times its request a limit may be."""
    min: Mapping[str, Quantity] = {}
    """Least amount accepted."""
    selector: Annotated[LimitRangeSelector | None, EXTENSION] = None
    """Kedge's own: restricts the item to some pods, containers or claims."""
    type: str = field(default_factory=str)
    """The kind that the item bounds: Container, Pod or PersistentVolumeClaim."""


class LimitRangeSpec(Model):
    """The bounds of a namespace."""

    __required__ = ("limits",)

    limits: Sequence[LimitRangeItem] = ()
    """Bounds, at most once for each type, or for each type and selector."""


class LimitRange(Object):
    """How little and how much the objects of one namespace may ask for."""

    spec: LimitRangeSpec = field(default_factory=LimitRangeSpec)
    """The bounds."""


def default(obj: LimitRange) -> LimitRange:
    if not obj.spec.limits:
        return obj
    limits = [_default_item(_rounded(item)) for item in obj.spec.limits]
    return replace(obj, spec=replace(obj.spec, limits=limits))


def _rounded(item: LimitRangeItem) -> LimitRangeItem:
    return replace(item, **{bound: rounded(getattr(item, bound)) for bound in _BOUNDS})


def _default_item(item: LimitRangeItem) -> LimitRangeItem:
    if item.type != CONTAINER or item.impliedDefaults is False:
        return item
    limits = {**item.max, **item.default}
    requests = {**item.min, **limits, **item.defaultRequest}
    return replace(item, default=limits, defaultRequest=requests)


def validate(obj: LimitRange) -> Iterator[FieldError]:
    seen: set[Hashable] = set()
    for i, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{i}]"
        yield from rules.problems(f"{path}.type", item.type, _type_problems(item.type))
        problems = list(_selector(item, f"{path}.selector"))
        yield from problems
        key = None if problems else (item.type, _restriction(item.selector))
        if key in seen and item.selector is None:
            yield FieldError.duplicate(f"{path}.type", item.type)
        elif key in seen:
            yield FieldError.duplicate(f"{path}.selector", item.selector)
        if key is not None:
            seen.add(key)
        if item.impliedDefaults is not None and item.type != CONTAINER:
            why = "may only be specified when `type` is 'Container'"
            yield FieldError.forbidden(f"{path}.impliedDefaults", why)
        yield from _names(item, path)
        yield from _amounts(item, path)


def _type_problems(type_: str) -> list[str]:
    if found := names.qualified_name(type_):
        return found
    if "/" in type_ or type_ in (CONTAINER, POD, CLAIM):
        return []
    return ["must be a standard limit type or fully qualified"]


def _selector(item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    selector = item.selector
    if selector is None:
        return
    if selector == LimitRangeSelector():
        why = f"must say at least one of {', '.join(LimitRangeSelector.__struct_fields__)}"
        yield FieldError.required(path, why)
    yield from validate_label_selector(selector.labels, path)
    if selector.fieldSelector:
        yield from _field_selector(item.type, selector.fieldSelector, f"{path}.fieldSelector")
    if selector.name:
        problems = names.dns_subdomain(selector.name)
        yield from rules.problems(f"{path}.name", selector.name, problems)
    if not selector.containerName:
        return
    if item.type != CONTAINER:
        why = "may only be specified when `type` is 'Container'"
        yield FieldError.forbidden(f"{path}.containerName", why)
    problems = names.dns_label(selector.containerName)
    yield from rules.problems(f"{path}.containerName", selector.containerName, problems)


def _field_selector(type_: str, text: str, path: str) -> Iterator[FieldError]:
    try:
        terms = selectors.parse_fields(text).terms
    except ValueError as error:
        yield FieldError.invalid(path, text, str(error))
        return
    known = selectable_fields(type_)
    for term in terms:
        if term.field not in known:
            why = f'"{term.field}" is not a known field selector: only {_listed(known)}'
            yield FieldError.invalid(path, text, why)


def selectable_fields(type_: str) -> Mapping[str, Callable[[Any], str]]:
    """Return the field selectors of the objects that items of a type cover."""
    if type_ in (CONTAINER, POD):
        return {**_METADATA_FIELDS, **pod.RESOURCE.presentation.fields}
    return _METADATA_FIELDS


_METADATA_FIELDS: Mapping[str, Callable[[Any], str]] = {
    "metadata.name": lambda obj: obj.metadata.name,
    "metadata.namespace": lambda obj: obj.metadata.namespace,
}


def _listed(known: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(known))


def _restriction(selector: LimitRangeSelector | None) -> Hashable:
    """Return a key that is equal for equivalent selectors."""
    if selector is None:
        return None
    fields = frozenset(selectors.parse_fields(selector.fieldSelector).terms)
    own = selector.name, selector.uid, selector.containerName
    return frozenset(compiled(selector.labels).requirements), fields, own


def _names(item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    inside_pods = item.type in (POD, CONTAINER)
    check = resource_names.container_name if inside_pods else resource_names.any_name
    for bound in _BOUNDS:
        amounts = getattr(item, bound)
        if item.type == POD and bound in ("default", "defaultRequest"):
            if amounts:
                why = "may not be specified when `type` is 'Pod'"
                yield FieldError.forbidden(f"{path}.{bound}", why)
            continue
        for name in sorted(amounts):
            yield from rules.problems(f"{path}.{bound}[{name}]", name, check(name))
    if item.type == CLAIM and "storage" not in {*item.min, *item.max}:
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield FieldError.required(f"{path}.limits", why)


def _amounts(item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    if item.type == POD:
        item = replace(item, default={}, defaultRequest={})
    every = (item.max, item.min, item.default, item.defaultRequest, item.maxLimitRequestRatio)
    for name in sorted(set().union(*every)):
        yield from _order(item, name, path)
        yield from _ratio(item, name, path)
        limit, request = item.default.get(name), item.defaultRequest.get(name)
        if resource_names.may_overcommit(name) or limit is None or request is None:
            continue
        if limit != request:
            why = f"default value {limit} must equal to defaultRequest value {request} in {name}"
            yield FieldError.invalid(f"{path}.defaultRequest[{name}]", request, why)


def _order(item: LimitRangeItem, name: str, path: str) -> Iterator[FieldError]:
    """Minimum, default request, default limit and maximum must come in this order."""
    least, most = item.min.get(name), item.max.get(name)
    limit, request = item.default.get(name), item.defaultRequest.get(name)
    if least is not None and most is not None and least > most:
        why = f"min value {least} is greater than max value {most}"
        yield FieldError.invalid(f"{path}.min[{name}]", least, why)
    at = f"{path}.defaultRequest[{name}]"
    if request is not None and least is not None and least > request:
        why = f"min value {least} is greater than default request value {request}"
        yield FieldError.invalid(at, request, why)
    if request is not None and most is not None and request > most:
        why = f"default request value {request} is greater than max value {most}"
        yield FieldError.invalid(at, request, why)
    if request is not None and limit is not None and request > limit:
        why = f"default request value {request} is greater than default limit value {limit}"
        yield FieldError.invalid(at, request, why)
    at = f"{path}.default[{name}]"
    if limit is not None and least is not None and least > limit:
        why = f"min value {least} is greater than default value {limit}"
        yield FieldError.invalid(at, least, why)
    if limit is not None and most is not None and limit > most:
        why = f"default value {limit} is greater than max value {most}"
        yield FieldError.invalid(at, most, why)


def _ratio(item: LimitRangeItem, name: str, path: str) -> Iterator[FieldError]:
    ratio = item.maxLimitRequestRatio.get(name)
    if ratio is None:
        return
    at = f"{path}.maxLimitRequestRatio[{name}]"
    if ratio < _ONE:
        yield FieldError.invalid(at, ratio, f"ratio {ratio} is less than 1")
    least, most = item.min.get(name), item.max.get(name)
    if not least or most is None:
        return
    # Multiplied out, so that no rounding decides; a negative minimum turns the comparison round.
    excess = ratio.nanos * least.nanos - most.nanos * _ONE.nanos
    if (excess > 0) if least.nanos > 0 else (excess < 0):
        why = f"ratio {ratio} is greater than max/min = {times(most, least)}"
        yield FieldError.invalid(at, ratio, why)


def named(limits: LimitRange) -> LimitRange:
    """Return a new LimitRange with a name. One that was posted without a name gets a UUID, as
    upstream; its uid is one already."""
    if limits.metadata.name:
        return limits
    return replace(limits, metadata=replace(limits.metadata, name=limits.metadata.uid))


RESOURCE: Resource[LimitRange] = Resource(
    type=LimitRange,
    plural="limitranges",
    strategy=Strategy(
        counts_generation=False,
        allows_create_on_update=True,
        default=default,
        prepare_for_create=named,
        validate=validate,
    ),
    presentation=Presentation(
        short_names=["limits"],
        # Only with `-o wide`, unlike upstream: the kind's first users were shown nothing but names.
        columns=(name_column(), replace(created_column(), priority=1)),
    ),
)
