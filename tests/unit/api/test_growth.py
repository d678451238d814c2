"""Judging an object takes time in proportion to its size, whichever of its lists is long.

Every list and map of a kind is filled with many items, alike or all different, and eight times as
many; no step may then take much more than eight times as long. Time is processor time.
"""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.apiserver import managed
from kedge.apiserver.verbs import decode
from kedge.machinery import strategic
from kedge.machinery.errors import StatusError, enough, invalid
from kedge.machinery.patch import PatchError
from kedge.machinery.schema import Schema

KINDS = [
    "certificatesigningrequests",
    "endpointslices",
    "ingresses",
    "networkpolicies",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
    "pods",
    "resourcequotas",
    "rolebindings",
    "roles",
    "services",
    "validatingwebhookconfigurations",
]
FEW, FACTOR = 200, 8
TOLERATED = 4
"""How many times longer than in proportion a step may take: the machine may be busy."""
UNTIMED = 0.1
"""Seconds that say nothing about growth."""
NOW = "2020-01-01T00:00:00Z"

Path = tuple[str | int, ...]
_WORDS = {"operator": "In", "protocol": "TCP", "effect": "NoSchedule"}


def lists(schema: Schema, at: Path = (), above: tuple[str, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """The path and schema of each list and map, once for each type that it is in."""
    if schema.name and schema.name in above:
        return
    above = (*above, schema.name) if schema.name else above
    for name, child in schema.fields.items():
        here = (*at, name)
        if child.type in ("list", "map"):
            yield here, child
            if child.items is not None and child.type == "list":
                yield from lists(child.items, (*here, 0), above)
        elif child.type == "object":
            yield from lists(child, here, above)


def value(schema: Schema, i: int, name: str = "", depth: int = 0) -> Any:
    """The i-th value of its kind, with its scalar fields set."""
    match schema.type:
        case "object":
            inner = schema.fields.items() if depth < 2 else ()
            return {
                key: value(field, i, key, depth + 1)
                for key, field in inner
                if field.type not in ("list", "map", "object") or key in schema.required
            }
        case "list":
            return [value(schema.items, i, name, depth + 1)] if schema.items else []
        case "map":
            return {}
        case "integer" | "number":
            return 1 + i
        case "boolean":
            return True
        case "quantity":
            return str(i + 1)
        case "int-or-string":
            return i + 1
        case "time":
            return NOW
        case "micro-time":
            return "2020-01-01T00:00:00.000000Z"
        case "bytes":
            return "eA=="
        case _:
            return _WORDS.get(name, f"x{i}")


def document(resource: Resource[Any], path: Path, schema: Schema, items: list[Any]) -> Any:
    """An object that has these items at the path, and little else."""
    meta = {"name": "x", "namespace": "default"} if resource.namespaced else {"name": "x"}
    whole: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
    }
    node: Any = whole
    for step, following in itertools.pairwise(path):
        if isinstance(step, int):
            node.append({})
            node = node[0]
        else:
            node = node.setdefault(step, [] if isinstance(following, int) else {})
    content = {f"k{i}": item for i, item in enumerate(items)} if schema.type == "map" else items
    node[path[-1]] = content
    return whole


def steps(resource: Resource[Any], posted: Any) -> dict[str, float]:
    """How long each step takes on the way of an object into the store."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        begin = time.process_time()
        try:
            return function()
        except (PatchError, StatusError, ValueError):
            return None
        finally:
            seconds[name] = time.process_time() - begin

    def refused(errors: Iterator[Any]) -> None:
        if found := enough(errors):
            invalid(resource.group, resource.kind, "x", found).status()

    fitted = timed("fit", lambda: decode.shape(resource, posted, []))
    obj = fitted and timed(
        "object", lambda: resource.strategy.default(resource.from_document(fitted))
    )
    if obj is None:
        return seconds
    timed("validate", lambda: refused(resource.strategy.validate(obj)))
    timed("new", lambda: refused(resource.strategy.validate_new(obj)))
    timed("update", lambda: refused(resource.strategy.validate_update(obj, obj)))
    timed("status", lambda: refused(resource.strategy.validate_status(obj, obj)))
    timed("warn", lambda: list(resource.strategy.warnings(obj)))
    timed("cells", lambda: [column.cell(obj) for column in resource.presentation.columns])
    whole = resource.to_document(obj)
    known: dict[str, Any] = {"api_version": resource.api_version, "now": NOW, "manager": "m"}
    timed("owners", lambda: managed.after_update(resource.schema, None, whole, **known))
    timed(
        "apply",
        lambda: managed.apply(resource.schema, whole, fitted, force=True, settle=dict, **known),
    )
    timed("strategic", lambda: strategic.apply(resource.schema, whole, whole))
    return seconds


def growths(resource: Resource[Any]) -> Iterator[str]:
    for path, schema in lists(resource.schema):
        for alike in (False, True) if schema.type == "list" else (False,):

            def measure(
                count: int, path: Path = path, schema: Schema = schema, alike: bool = alike
            ) -> dict[str, float]:
                name = str(path[-1])
                items = [
                    value(schema.items or schema, 0 if alike else i, name) for i in range(count)
                ]
                return steps(resource, document(resource, path, schema, items))

            few, many = measure(FEW), measure(FEW * FACTOR)
            for step, seconds in many.items():
                bound = FACTOR * TOLERATED * max(few[step], 0.001)
                if seconds > UNTIMED and seconds > bound:
                    yield f"{path} {'alike' if alike else ''} {step}: {few[step]}, {seconds}"


@pytest.mark.parametrize("plural", KINDS)
@pytest.mark.timeout(300)
def test_work_is_proportional_to_the_object(plural: str) -> None:
    found = [each for each in Catalog() if each.plural == plural]
    gc.disable()
    try:
        assert [growth for resource in found[:1] for growth in growths(resource)] == []
    finally:
        gc.enable()
