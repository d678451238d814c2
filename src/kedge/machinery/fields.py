"""Sets of fields, kept in the form that managedFields has on the wire (fieldsV1).

A set is a tree of dicts: {} is a field that is in the set; a field with others below it is in the
set itself if it holds "."; the root {} is the empty set. Sets share branches: never change one.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kedge.machinery.schema import ANY, Schema
from kedge.machinery.short_cache import SHORT

Fields = dict[str, Any]

_LEAF: Fields = {}
_SCALARS = (str, int, bool)
_ABSENT: Any = object()


class Comparison(NamedTuple):
    """The difference between a document and an older one."""

    added: Fields
    modified: Fields
    removed: Fields


def is_empty(fields: Fields) -> bool:
    return not fields


def contains(fields: Fields, path: Sequence[str]) -> bool:
    """Whether the field at the path, given as elements such as "f:spec", is in the set."""
    for element in path:
        inner = fields.get(element)
        if inner is None:
            return False
        fields = inner
    return bool(path) and (not fields or "." in fields)


def union(a: Fields, b: Fields) -> Fields:
    """Return the union of two sets."""
    return _union(a, b) if a and b else a or b


def intersection(a: Fields, b: Fields) -> Fields:
    """Return the intersection of two sets."""
    return _common(a, b)


def difference(a: Fields, b: Fields) -> Fields:
    """Return `a` without the fields of `b`; fields below a field of `b` stay."""
    return (_difference(a, b) or {}) if a and b else a


def without(a: Fields, b: Fields) -> Fields:
    """Return `a` without the fields of `b` and all fields below them."""
    return (_without(a, b) or {}) if a and b else a


def of(schema: Schema, document: Any) -> Fields:
    """Every field that the document sets, as it counts for who applied it."""
    return _tree(schema, document, False, False) or {}


def compare(schema: Schema, old: Any, new: Any) -> Comparison:
    """Which fields `new` adds, changes and removes.

    Unlike in `of`, an added or removed field counts itself besides what it holds.
    """
    found = Comparison({}, {}, {})
    if old != new:
        _compare_members(schema, old or {}, new or {}, found)
    return found


def new_fields(schema: Schema, new: dict[str, Any]) -> Fields:
    """Return the fields of a new object: those that `compare` with an empty one finds."""
    result: Fields = {}
    lasting, zeros = _lasting(schema), _zeros(schema)
    for name, value in new.items():
        if value is None or (not value and name in zeros and type(value) in _SCALARS):
            continue
        child = schema.field(name) or ANY
        part = _filled(child, value) if name in lasting else _tree(child, value, True, True)
        if part is not None:
            result["f:" + name] = part
    return result


def remove(schema: Schema, document: Any, fields: Fields) -> Any:
    """The document without these fields; a field that this leaves empty is null, as upstream."""
    return _pruned(schema, document, fields) if fields else document


def named(schema: Schema, fields: Fields) -> Fields:
    """The set together with every declared field that holds one of its fields."""
    result: Fields = {}
    for element, inner in fields.items():
        child = _member_schema(schema, element)
        below = named(child, inner) if inner else inner
        if below and "." not in below and element[2:] in schema.fields:
            below = {".": _LEAF, **below}
        result[element] = below
    return result


def paths(fields: Fields) -> Iterator[str]:
    """Every field of the set, written as messages write it: .spec.containers[name="c"].image"""
    children = sorted(_children(fields), key=lambda pair: ("fkvi".find(pair[0][0]), pair[0]))
    for element, inner in children:
        if not inner or "." in inner:
            yield shown(element)
    for element, inner in children:
        for below in paths(inner):
            yield shown(element) + below


def shown(element: str) -> str:
    """An element of a path as messages write it: .image, [name="c"], [="value"], [0]."""
    kind, text = element[0], element[2:]
    if kind == "k":
        keys = json.loads(text)
        return f"[{','.join(f'{key}={_quoted(value)}' for key, value in keys.items())}]"
    return {"f": f".{text}", "v": f"[={text}]", "i": f"[{text}]"}[kind]


def parsed(fields: Any) -> Fields:
    """Return a set of fields in canonical form; raises ValueError if it is malformed."""
    if not isinstance(fields, dict):
        raise ValueError(f"expected a set of fields, got {fields!r}")
    result = {}
    for element, inner in fields.items():
        if element == ".":
            continue
        if element[1:2] != ":":
            raise ValueError(f"missing colon: {element}")
        if element[0] in "fkvi":
            result[_canonical(element)] = _parsed_below(inner)
    return result


def element_of(schema: Schema, item: Any) -> str:
    """The element that names an item of a set or keyed list; ValueError if it cannot have one."""
    try:
        return _key_of(schema, item) if schema.list_keys else _value_of(item)
    except TypeError:
        raise ValueError(
            "associative list with keys may not have a key that is no scalar"
        ) from None


def _value_of(item: Any) -> str:
    if item is None or isinstance(item, dict | list):
        raise ValueError(_NOT_A_VALUE[type(item)])
    return _value_element(item)


def _key_of(schema: Schema, item: Any) -> str:
    if type(item) is not dict:
        what = "a null element" if item is None else "non-map elements"
        raise ValueError(f"associative list with keys may not have {what}")
    keys = schema.list_keys
    given = [item[key] for key in keys if key in item]
    if len(given) == len(keys):
        return _key_element(keys, *given)
    present = tuple(key for key in keys if _key_value(schema, item, key) is not None)
    if not present:
        quoted = " ".join(f'"{key}"' for key in keys)
        raise ValueError(
            f"associative list with keys has an element that omits all key fields [{quoted}] "
            "(and doesn't have default values for any key fields)"
        )
    return _key_element(present, *[_key_value(schema, item, key) for key in present])


_NOT_A_VALUE = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}


# The algebra. Below the root {} means the field itself, so nothing at all is None.


def _union(a: Fields, b: Fields) -> Fields:
    if not a or not b:
        more = a or b
        return more if not more or "." in more else {".": _LEAF, **more}
    result = dict(a)
    for element, inner in b.items():
        mine = result.get(element)
        result[element] = inner if mine is None else _union(mine, inner)
    return result


def _intersection(a: Fields, b: Fields) -> Fields | None:
    itself = (not a or "." in a) and (not b or "." in b)
    common = _common(a, b)
    if not common:
        return _LEAF if itself else None
    return {".": _LEAF, **common} if itself else common


def _common(a: Fields, b: Fields) -> Fields:
    if len(b) < len(a):
        a, b = b, a
    result = {}
    for element, inner in a.items():
        other = b.get(element)
        if other is not None and element != ".":
            both = _intersection(inner, other)
            if both is not None:
                result[element] = both
    return result


def _difference(a: Fields, b: Fields) -> Fields | None:
    if not a:
        return a if b and "." not in b else None
    if not b:
        return {element: inner for element, inner in a.items() if element != "."}
    result = dict(a)
    for element, inner in b.items():
        mine = result.get(element)
        if mine is None:
            continue
        left = None if element == "." else _difference(mine, inner)
        if left is None:
            del result[element]
        else:
            result[element] = left
    return _settled(result)


def _without(a: Fields, b: Fields) -> Fields | None:
    if not a:
        return a
    result = dict(a)
    for element, inner in b.items():
        mine = result.get(element)
        if mine is None:
            continue
        left = _without(mine, inner) if inner and "." not in inner else None
        if left is None:
            del result[element]
        else:
            result[element] = left
    return _settled(result)


def _settled(result: Fields) -> Fields | None:
    if len(result) == 1 and "." in result:
        return _LEAF
    return result or None


# From documents to sets.


def _tree(schema: Schema, value: Any, itself: bool, every: bool) -> Fields | None:
    """The fields of a value: {} if it is a leaf, None if there are none. `every` counts holders."""
    if type(value) is dict:
        if not value or schema.atomic:
            return _LEAF
        return _tree_of_members(schema, value, itself, every)
    if type(value) is list:
        if schema.type != "list" or schema.list_type == "atomic":
            return _LEAF
        if value:
            return _tree_of_items(schema, value, itself, every)
        return _LEAF if itself or every else None
    return _LEAF


def _tree_of_members(
    schema: Schema, value: dict[str, Any], itself: bool, every: bool
) -> Fields | None:
    result: Fields = {".": _LEAF} if itself else {}
    declared = schema.fields
    for name, inner in value.items():
        kind = type(inner)
        if kind is not dict and kind is not list:
            result["f:" + name] = _LEAF
            continue
        child = declared.get(name)
        if child is None:
            below = _tree(schema.field(name) or ANY, inner, True, every)
        else:
            below = _tree(child, inner, every, every)
        if below is not None:
            result["f:" + name] = below
    return result if len(result) > 1 else _settled(result)


def _tree_of_items(schema: Schema, items: list[Any], itself: bool, every: bool) -> Fields | None:
    result: Fields = {".": _LEAF} if itself else {}
    child = schema.items or ANY
    only = schema.list_keys[0] if len(schema.list_keys) == 1 else ""
    for item in items:
        name = item.get(only) if only and type(item) is dict else None
        # A single string key is the usual case of an associative list: take a shortcut.
        element = _key_element((only,), name) if type(name) is str else element_of(schema, item)
        # Of what occurs twice only the occurrence counts.
        again = element in result
        result[element] = _LEAF if again else _tree(child, item, True, every)
    return result


# From two documents to the sets between them.


def _compare_members(
    schema: Schema, old: dict[str, Any], new: dict[str, Any], found: Comparison
) -> None:
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before == value:
            continue
        child = schema.field(name) or ANY
        if before is _ABSENT and name in _lasting(schema):
            before = None
        _compare_one(child, "f:" + name, before, value, found)
    for name, before in old.items():
        if name not in new:
            after = None if name in _lasting(schema) else _ABSENT
            _compare_one(schema.field(name) or ANY, "f:" + name, before, after, found)


def _compare_one(schema: Schema, element: str, old: Any, new: Any, found: Comparison) -> None:
    if old is _ABSENT:
        found.added[element] = _tree(schema, new, True, True)
        return
    if new is _ABSENT:
        found.removed[element] = _tree(schema, old, True, True)
        return
    inner = Comparison({}, {}, {})
    if _is_granular(schema, old, new):
        if type(old or new) is dict:
            _compare_members(schema, old or {}, new or {}, inner)
        else:
            _compare_items(schema, old or [], new or [], inner)
    elif not (_is_void(old) and _is_void(new)):
        found.modified[element] = _LEAF
    for whole, part in zip(found, inner, strict=True):
        if part:
            whole[element] = part


def _filled(schema: Schema, value: Any) -> Fields | None:
    """The fields of a value that was there all the time, and empty."""
    if not _is_granular(schema, None, value):
        return None if _is_void(value) else _LEAF
    if type(value) is dict:
        return new_fields(schema, value) or None
    child = schema.items or ANY
    return {
        element: _tree(child, items[0], True, True) if len(items) == 1 else _LEAF
        for element, items in _grouped(schema, value).items()
    }


def _is_granular(schema: Schema, old: Any, new: Any) -> bool:
    kinds = {type(value) for value in (old, new) if value is not None}
    if kinds == {dict}:
        return not schema.atomic and bool(old or new)
    return kinds == {list} and schema.list_type != "atomic" and bool(old or new)


def _is_void(value: Any) -> bool:
    return value is None or (isinstance(value, dict | list) and not value)


def _compare_items(schema: Schema, old: list[Any], new: list[Any], found: Comparison) -> None:
    child = schema.items or ANY
    before, after = _grouped(schema, old), _grouped(schema, new)
    for element in dict.fromkeys([*before, *after]):
        left, right = before.get(element, []), after.get(element, [])
        if left == right:
            continue
        if len(left) <= 1 and len(right) <= 1:
            one, other = (left or [_ABSENT])[0], (right or [_ABSENT])[0]
            _compare_one(child, element, one, other, found)
        elif len(left) > 1 and len(right) > 1:
            found.modified[element] = _LEAF
        elif len(left) > 1:
            # Several became one or none: the mark of the several goes, the one comes.
            found.removed[element] = _LEAF
            if right:
                found.added[element] = _tree(child, right[0], True, True)
        else:
            found.added[element] = _LEAF
            if left:
                found.removed[element] = _tree(child, left[0], True, True)


def _grouped(schema: Schema, items: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(element_of(schema, item), []).append(item)
    return groups


_BUILT_IN = (
    "io.k8s.api.",
    "io.k8s.apimachinery.",
    "io.k8s.apiextensions-apiserver.",
    "io.k8s.kube-aggregator.",
)


def forget_schemas() -> None:
    """Drop cached results. The schemas in their keys may no longer be served."""
    _lasting.cache_clear()
    _zeros.cache_clear()


@lru_cache(maxsize=4096)
def _lasting(schema: Schema) -> frozenset[str]:
    """The fields that a real server's objects always hold, so that filling one does not add it.

    Those are the structs that are no pointers (OpenAPI gives them the default {}) and the required
    lists and maps of built-in types; objects of a CRD hold only what they were given.
    """
    if not schema.name.startswith(_BUILT_IN):
        return frozenset()
    short = _short(schema)
    meta = schema.fields.get("metadata")
    parts = ("metadata", "spec", "status") if meta and meta.name.endswith(".ObjectMeta") else ()
    return frozenset(
        name
        for name, child in schema.fields.items()
        if child.type in ("object", "map", "list")
        and (name in schema.required or name in parts or _default(child) == {})
        and name not in _OMITTED.get(short, ())
    ) | _WRITTEN.get(short, frozenset())


def _short(schema: Schema) -> str:
    """`apps.v1.DeploymentSpec` for io.k8s.api.apps.v1.DeploymentSpec."""
    return ".".join(schema.name.split(".")[-3:])


_OMITTED = {
    "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec": {"validationActions"},
    "networking.v1.IPAddressSpec": {"parentRef"},
    "resource.v1.CounterSet": {"counters"},
    "resource.v1.DeviceCounterConsumption": {"counters"},
}
"""Required fields that Go leaves out where they are empty."""
_WRITTEN = {
    "apiextensions.v1.CustomResourceDefinitionStatus": frozenset({"conditions", "storedVersions"}),
    "apps.v1.DeploymentSpec": frozenset({"strategy"}),
    "autoscaling.v2.HorizontalPodAutoscalerStatus": frozenset({"currentMetrics"}),
    "core.v1.ContainerImage": frozenset({"names"}),
    "core.v1.ProjectedVolumeSource": frozenset({"sources"}),
    "discovery.v1.EndpointSlice": frozenset({"endpoints", "ports"}),
    "flowcontrol.v1.LimitedPriorityLevelConfiguration": frozenset({"limitResponse"}),
    "flowcontrol.v1.ResourcePolicyRule": frozenset({"namespaces"}),
    "networking.v1.IngressServiceBackend": frozenset({"port"}),
    "networking.v1.IngressStatus": frozenset({"loadBalancer"}),
    "networking.v1.NetworkPolicySpec": frozenset({"podSelector"}),
    "rbac.v1.ClusterRole": frozenset({"rules"}),
    "rbac.v1.Role": frozenset({"rules"}),
    "resource.v1.AllocatedDeviceStatus": frozenset({"conditions"}),
    "resource.v1.DeviceClaim": frozenset({"requests"}),
    "storage.v1.CSINodeDriver": frozenset({"topologyKeys"}),
}
"""Fields that Go writes even where they are empty, though they are not required."""
_WRITTEN_ZEROS = {"core.v1.Event": ("reportingComponent", "reportingInstance")}
"""The same for fields that are no objects, lists or maps."""


@lru_cache(maxsize=4096)
def _zeros(schema: Schema) -> frozenset[str]:
    """The fields without content of their own that a real server's objects always have."""
    if not schema.name.startswith(_BUILT_IN):
        return frozenset()
    more = _WRITTEN_ZEROS.get(_short(schema), ())
    return frozenset((*schema.required, *more))


# From a document and a set to what is left.


def _pruned(schema: Schema, value: Any, fields: Fields) -> Any:
    if isinstance(value, dict):
        members = {}
        for name, inner in value.items():
            kept = _kept(schema.field(name) or ANY, inner, fields.get("f:" + name))
            if kept is not _ABSENT:
                members[name] = kept
        return members
    if isinstance(value, list) and schema.list_type != "atomic":
        child = schema.items or ANY
        kept_items = (_kept(child, item, fields.get(element_of(schema, item))) for item in value)
        # An item of an associative list is not null: one that is left empty goes.
        return [item for item in kept_items if item is not _ABSENT and item is not None]
    return value


def _kept(schema: Schema, value: Any, fields: Fields | None) -> Any:
    if fields is None:
        return value
    if not fields or "." in fields:
        return _ABSENT
    left = _pruned(schema, value, fields)
    return None if value and not left else left


# Elements of paths.


def _member_schema(schema: Schema, element: str) -> Schema:
    if element[:2] == "f:":
        return schema.field(element[2:]) or ANY
    return (schema.items if element[:2] == "k:" else None) or ANY


def _key_value(schema: Schema, item: dict[str, Any], key: str) -> Any:
    if key in item:
        return item[key]
    field = schema.items.field(key) if schema.items else None
    return _default(field) if field else None


def _default(schema: Schema) -> Any:
    return schema.default if schema.default is not None else schema.keywords.get("default")


def _key_element(keys: tuple[str, ...], *values: Any) -> str:
    """Return the path element of a list item with these keys."""
    if any(type(each) is str and len(each) > SHORT for each in values):
        return _encoded_key(keys, *values)
    return _cached_key(keys, *values)


def _encoded_key(keys: tuple[str, ...], *values: Any) -> str:
    return "k:" + _json(dict(sorted(zip(keys, values, strict=True))))


def _value_element(value: Any) -> str:
    """Return the path element of a value in a set."""
    is_long = type(value) is str and len(value) > SHORT
    return _encoded_value(value) if is_long else _cached_value(value)


def _encoded_value(value: Any) -> str:
    return "v:" + _json(value)


# Typed, because 1, 1.0 and True are one key to a dict.
_cached_key = lru_cache(maxsize=8192, typed=True)(_encoded_key)
_cached_value = lru_cache(maxsize=8192, typed=True)(_encoded_value)


_HTML = str.maketrans({char: f"\\u{ord(char):04x}" for char in ("<", ">", "&", "\u2028", "\u2029")})


def _json(value: Any) -> str:
    """JSON as Go writes it into the elements: compact, with what is special to HTML escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_HTML)


def _canonical(element: str) -> str:
    kind, text = element[0], element[2:]
    if kind == "k":
        keys = json.loads(text)
        if not isinstance(keys, dict):
            raise ValueError(f"expected keys, got {text}")
        return "k:" + _json(dict(sorted(keys.items())))
    return "v:" + _json(json.loads(text)) if kind == "v" else element


def _parsed_below(inner: Any) -> Fields:
    below = parsed(inner)
    return {".": _LEAF, **below} if below and "." in inner else below


def _children(fields: Fields) -> list[tuple[str, Fields]]:
    return [(element, inner) for element, inner in fields.items() if element != "."]


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
