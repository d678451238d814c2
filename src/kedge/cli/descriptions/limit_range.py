"""LimitRange: one line for every resource that an item bounds, in the order in which it does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kedge.cli.descriptions.parts import Fields, RelatedObjects, fact, text
from kedge.cli.output import tabstops

BOUNDS: Final = {"Min": "min", "Max": "max"}
ALL_BOUNDS: Final = {
    **BOUNDS,
    "Default Request": "defaultRequest",
    "Default Limit": "default",
    "Max Limit/Request Ratio": "maxLimitRequestRatio",
}
RESTRICTION: Final = "Only For"


def describe(limits: Fields, about: RelatedObjects) -> str:
    """Minimum and maximum; with `-o wide` all there is, in the columns of `kubectl describe`."""
    metadata = limits["metadata"]
    items = (limits.get("spec") or {}).get("limits") or ()
    if not about.wide:
        return text([fact("Name", metadata["name"]), *table(items, BOUNDS)], tabstops.TABBED)
    head = [fact("Name", metadata["name"]), fact("Namespace", metadata["namespace"])]
    return text([*head, *table(items, ALL_BOUNDS)])


def table(items: Sequence[Fields], bounds: Mapping[str, str]) -> Iterator[str]:
    """A heading and the rows, a dash where nothing is bounded; whom for, if not for all."""
    restricted = any(item.get("selector") for item in items)
    heads = ["Type", "Resource", *bounds, *[RESTRICTION] * restricted]
    yield "\t".join(heads)
    yield "\t".join("-" * len(head) for head in heads)
    for item in items:
        amounts = [item.get(field) or {} for field in bounds.values()]
        whom = [restriction(item.get("selector") or {})] * restricted
        for name in dict.fromkeys(name for each in amounts for name in each):
            cells = [str(each.get(name, "-")) for each in amounts]
            yield "\t".join([item["type"], name, *cells, *whom])


def restriction(selector: Fields) -> str:
    """The conditions of a selector on one line; a dash for none."""
    labels = selector.get("matchLabels") or {}
    told = [f"{key}={value}" for key, value in sorted(labels.items())]
    told += [_expression(each) for each in selector.get("matchExpressions") or ()]
    if fields := selector.get("fieldSelector"):
        told.append(fields)
    told += [
        f"{key}={selector[key]}" for key in ("name", "uid", "containerName") if key in selector
    ]
    return ",".join(told) or "-"


def _expression(values: Fields) -> str:
    """`tier in (a, b)`, `tier notin (a)`, `tier`, `!tier`."""
    key, operator = values["key"], values["operator"]
    if operator in ("In", "NotIn"):
        return f"{key} {operator.lower()} ({', '.join(values.get('values') or ())})"
    return key if operator == "Exists" else f"!{key}"
