"""Schema trees as OpenAPI components: definitions of version 2, components of version 3."""

from typing import Any

from kedge.api.builtin import schemas
from kedge.api.resource import Resource
from kedge.machinery.schema import Schema

Json = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"
LIST_META = f"{META}.ListMeta"
DELETE_OPTIONS = f"{META}.DeleteOptions"
STATUS = f"{META}.Status"
PATCH = f"{META}.Patch"

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TIME = f"{META}.Time"
_MICRO_TIME = f"{META}.MicroTime"
_SCALARS = {
    "quantity": _QUANTITY,
    "int-or-string": _INT_OR_STRING,
    "time": _TIME,
    "micro-time": _MICRO_TIME,
}
_OBJECTS = (f"{META}.FieldsV1", PATCH, "io.k8s.apimachinery.pkg.runtime.RawExtension")
_MOMENT: Json = {"type": "string", "format": "date-time"}
_WRITTEN: dict[str, Json] = {
    _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    _INT_OR_STRING: {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _TIME: _MOMENT,
    _MICRO_TIME: _MOMENT,
    **{name: {"type": "object"} for name in _OBJECTS},
}
_WRITTEN_IN_V2: dict[str, Json] = _WRITTEN | {
    _QUANTITY: {"type": "string"},
    _INT_OR_STRING: {"type": "string", "format": "int-or-string"},
}
_JUNCTIONS = ("allOf", "anyOf", "oneOf", "not")

# Upstream's end-to-end tests look for the opening words of these three.
_API_VERSION = "APIVersion defines the group and version that this object is written in."
_KIND = "Kind names the type of this object, in CamelCase."
_METADATA = "Standard object's metadata: its name, labels and history."


class Components:
    """The types that one document refers to, collected on first reference."""

    def __init__(self, *, v2: bool, upstream_only: bool = False) -> None:
        self.v2 = v2
        self._upstream_only = upstream_only
        self.written: dict[str, Json] = {}
        self._prefix = "#/definitions/" if v2 else "#/components/schemas/"

    def ref(self, name: str) -> Json:
        """A reference to a type; the type itself is listed too, if it is a built-in one."""
        if name not in self.written:
            self._write(name)
        return self.link(name)

    def link(self, name: str) -> Json:
        """A reference to a type that is listed elsewhere."""
        return {"$ref": self._prefix + name}

    def _write(self, name: str) -> None:
        special = _WRITTEN_IN_V2 if self.v2 else _WRITTEN
        if name in special:
            self.written[name] = special[name]
        elif node := schemas.known(name):
            # Listed before its fields are looked at, for a type may hold itself.
            component = self.written[name] = {}
            component.update(self._object(node) if node.type == "object" else {})

    def add_kind(self, resource: Resource[Any]) -> Json:
        """List a kind and its list; the reference to the kind."""
        name, node = kind_name(resource), resource.schema
        if name not in self.written:
            component = self.written[name] = {}
            component.update(self._custom_kind(node) if resource.custom else self._object(node))
        # Here, for a subresource of another kind may have listed the type before its own turn came.
        self.written[name]["x-kubernetes-group-version-kind"] = [gvk(resource)]
        if "list" in resource.verbs:
            self.written.setdefault(list_name(resource), self._list(resource))
        return self.link(name)

    def _list(self, resource: Resource[Any]) -> Json:
        kind = self.link(kind_name(resource))
        return {
            "description": f"A list of objects of kind {resource.kind}.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": _API_VERSION},
                "kind": {"type": "string", "description": _KIND},
                "metadata": self._with(self.ref(LIST_META), {"description": "About the list."}),
                "items": {"type": "array", "items": kind, "description": "The objects."},
            },
            "x-kubernetes-group-version-kind": [gvk(resource) | {"kind": resource.list_kind}],
        }

    def _with(self, reference: Json, extra: Json) -> Json:
        """A reference together with what a field says beyond its type."""
        if not extra:
            return reference
        # Version 3 ignores whatever stands beside a reference.
        return reference | extra if self.v2 else {"allOf": [reference], **extra}

    def _object(self, node: Schema) -> Json:
        written: Json = {"type": "object"}
        if node.description:
            written["description"] = node.description
        if node.fields:
            fields = node.fields.items()
            written["properties"] = {n: self._field(f) for n, f in fields if self._lists(f)}
        if node.required:
            written["required"] = list(node.required)
        if node.atomic:
            written["x-kubernetes-map-type"] = "atomic"
        return written | self._keywords(node)

    def _lists(self, field: Schema) -> bool:
        return not (self._upstream_only and field.extension)

    def _keywords(self, node: Schema) -> Json:
        # Version 2 tells no defaults of built-in types.
        return {k: v for k, v in node.keywords.items() if not (self.v2 and k == "default")}

    def _field(self, node: Schema) -> Json:
        """Return the keywords that the enclosing type sets for a field."""
        extra = {"description": node.description} if node.description else {}
        extra |= _patch_words(node) | self._keywords(node)
        name = _SCALARS.get(node.type, node.name)
        if name:
            whole = schemas.known(name)
            if whole is not None and node.atomic != whole.atomic:
                extra["x-kubernetes-map-type"] = "atomic" if node.atomic else "granular"
            if whole is not None and node.description == whole.description:
                extra.pop("description", None)
            return self._with(self.ref(name), extra)
        return self._plain(node) | extra

    def _plain(self, node: Schema) -> Json:
        match node.type:
            case "object":
                return self._object(node)
            case "map":
                assert node.items is not None
                atomic = {"x-kubernetes-map-type": "atomic"} if node.atomic else {}
                return {
                    "type": "object",
                    "additionalProperties": self._field(node.items),
                    **atomic,
                }
            case "list":
                assert node.items is not None
                items = self._field(node.items)
                return {"type": "array", "items": items} | _list_words(node)
            case "bytes":
                return {"type": "string", "format": "byte"}
            case "any":
                return {}
            case scalar:
                return {"type": scalar} | ({"format": node.format} if node.format else {})

    def _custom_kind(self, node: Schema) -> Json:
        """A kind that a CRD defines: its own schema, and what every object has."""
        if self.v2 and node.open:
            # kubectl takes any properties for all there are.
            return {"type": "object"}
        written = self._custom(node)
        given = written.get("properties", {})
        written["properties"] = {**given, **self._whole_object(_API_VERSION, _KIND)}
        return written

    def _whole_object(self, api_version: str, kind: str) -> Json:
        return {
            "apiVersion": {"type": "string", "description": api_version},
            "kind": {"type": "string", "description": kind},
            "metadata": self._with(self.ref(OBJECT_META), {"description": _METADATA}),
        }

    def _custom(self, node: Schema) -> Json:
        """A part of a CRD's schema, as it was written there."""
        keywords = {
            word: value
            for word, value in node.keywords.items()
            if not (self.v2 and word in _JUNCTIONS)
        }
        written = _custom_type(node)
        if node.description:
            written["description"] = node.description
        if node.default is not None:
            written["default"] = node.default
        written |= self._custom_members(node)
        if node.type == "list" and node.list_type != "atomic":
            written |= _list_words(node)
        if node.atomic:
            written["x-kubernetes-map-type"] = "atomic"
        if node.embedded:
            written["x-kubernetes-embedded-resource"] = True
            written = self._embedded(written)
        written |= keywords
        return _kubectl_safe(written) if self.v2 else written

    def _custom_members(self, node: Schema) -> Json:
        if node.type == "object":
            members: Json = {}
            if node.fields:
                fields = {name: self._custom(field) for name, field in node.fields.items()}
                members["properties"] = fields
            if required := [name for name in node.required if self._may_require(node, name)]:
                members["required"] = required
            return members
        if node.items is None:
            return {}
        word = "additionalProperties" if node.type == "map" else "items"
        return {word: self._custom(node.items)}

    def _may_require(self, node: Schema, name: str) -> bool:
        # Version 2 has no null, so a field that may be null may be absent.
        field = node.fields.get(name)
        return not (self.v2 and field is not None and field.nullable)

    def _embedded(self, written: Json) -> Json:
        if self.v2 and "x-kubernetes-preserve-unknown-fields" in written:
            return written
        properties = written.get("properties", {}) | self._whole_object(_API_VERSION, _KIND)
        required = dict.fromkeys([*written.get("required", ()), "kind", "apiVersion"])
        return written | {"properties": properties, "required": list(required)}


def kind_name(resource: Resource[Any]) -> str:
    """`io.k8s.api.core.v1.Pod`, or `com.example.v1.CronTab` of a CRD's kind."""
    if not resource.custom:
        return resource.schema.name
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"


def list_name(resource: Resource[Any]) -> str:
    return f"{kind_name(resource).rpartition('.')[0]}.{resource.list_kind}"


def gvk(resource: Resource[Any]) -> Json:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _patch_words(node: Schema) -> Json:
    """How strategic merge patches treat a field."""
    words: Json = {}
    strategy = ["merge"] * node.merge + ["retainKeys"] * node.retain_keys
    if strategy:
        words["x-kubernetes-patch-strategy"] = ",".join(strategy)
    if node.merge_key:
        words["x-kubernetes-patch-merge-key"] = node.merge_key
    return words


def _list_words(node: Schema) -> Json:
    keys: Json = {"x-kubernetes-list-map-keys": list(node.list_keys)} if node.list_keys else {}
    return {"x-kubernetes-list-type": node.list_type, **keys}


def _custom_type(node: Schema) -> Json:
    written: Json = {}
    match node.type:
        case "any":
            written["x-kubernetes-preserve-unknown-fields"] = True
        case "int-or-string":
            written["x-kubernetes-int-or-string"] = True
        case "object" | "map":
            written["type"] = "object"
        case "list":
            written["type"] = "array"
        case "bytes" | "time" | "micro-time" | "quantity":
            written["type"] = "string"
        case scalar:
            written["type"] = scalar
    if node.open:
        written["x-kubernetes-preserve-unknown-fields"] = True
    if node.format:
        written["format"] = node.format
    if node.nullable:
        written["nullable"] = True
    return written


def _kubectl_safe(written: Json) -> Json:
    """Return a CRD's schema for OpenAPI 2, without the parts that kubectl misreads."""
    dropped: set[str] = set()
    if written.get("x-kubernetes-preserve-unknown-fields"):
        dropped |= {"items", "properties"}
        if written.get("type") in ("object", "array"):
            dropped.add("type")
    if written.get("nullable"):
        dropped |= {"type", "nullable", "items", "properties"}
    return {word: value for word, value in written.items() if word not in dropped}
