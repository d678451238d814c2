"""Struct -> Schema: fields and keys from annotations, descriptions from docstrings."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import inspect as types

from kedge.machinery.quantity import Quantity
from kedge.machinery.schema import Schema, with_zero

_PREFIXES = {
    "model": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "apiextensions_v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "metrics_v1": "io.k8s.metrics.pkg.apis.metrics.v1",
    "metrics_v1beta1": "io.k8s.metrics.pkg.apis.metrics.v1beta1",
    "scheduling_kedge_v1alpha1": "kedge.scheduling.v1alpha1",
    "apiregistration_v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
}
_made: dict[type, Schema] = {}


def schema_of(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a Struct type. The same type always gives the same node."""
    known = _made.get(struct)
    if known is not None:
        return known
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return _of(info)


def _of(info: types.StructType) -> Schema:
    # The schemas of nested types come from the cache: inspecting each type again takes far longer.
    struct = info.cls
    known = _made.get(struct)
    if known is not None:
        return known
    node = _made[struct] = Schema(
        type="object",
        name=component_name(struct),
        required=getattr(struct, "__required__", ()),
        atomic=getattr(struct, "__atomic__", False),
        description=inspect.getdoc(struct) or "",
        fields={},
    )
    docs = field_docs(struct)
    for field in info.fields:
        member = _described(_node(field.type), docs.get(field.name, ""))
        if isinstance(field.type, types.StructType):
            # Never absent, so OpenAPI publishes that it defaults to nothing inside.
            member = msgspec.structs.replace(member, keywords={"default": {}} | member.keywords)
        if field.encode_name in node.required:
            member = with_zero(member)
        node.fields[field.encode_name] = member
    return node


def component_name(struct: type) -> str:
    """`io.k8s.api.core.v1.Pod` for the Pod of kedge.api.core_v1."""
    room = struct.__module__.removeprefix("kedge.api.").split(".")[0]
    group, _, version = room.rpartition("_")
    prefix = _PREFIXES.get(room) or f"io.k8s.api.{group}.{version}"
    return f"{prefix}.{struct.__name__}"


@cache
def field_docs(struct: type) -> dict[str, str]:
    """The docstrings under the fields of a class and of its bases."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__.startswith("kedge."):
            docs |= _module_docs(base.__module__).get(base.__name__, {})
    return docs


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: dict(_docs_under_fields(node.body))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _docs_under_fields(body: list[ast.stmt]) -> Any:
    for line, below in pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield line.target.id, inspect.cleandoc(text)


def _described(node: Schema, description: str) -> Schema:
    # Named types are shared between fields, so a field's own words go on a copy.
    return msgspec.structs.replace(node, description=description) if description else node


def _node(info: types.Type) -> Schema:
    extra: dict[str, Any] = {}
    while isinstance(info, types.Metadata):
        extra = (info.extra or {}) | extra
        info = info.type
    if "type" in extra:
        return Schema(**extra)
    node = _plain(info)
    return msgspec.structs.replace(node, **extra) if extra else node


def _plain(info: types.Type) -> Schema:
    match info:
        case types.UnionType():
            return _node(next(t for t in info.types if not isinstance(t, types.NoneType)))
        case types.StructType():
            return _of(info)
        case types.ListType() | types.CollectionType():
            return Schema(type="list", items=_node(info.item_type))
        case types.DictType():
            return Schema(type="map", items=_node(info.value_type))
        case types.CustomType() if info.cls is Quantity:
            return Schema(type="quantity")
        case types.StrType():
            return Schema(type="string")
        case types.IntType():
            return Schema(type="integer", format="int64")
        case types.FloatType():
            return Schema(type="number", format="double")
        case types.BoolType():
            return Schema(type="boolean")
        case _:
            raise TypeError(f"no schema for {info}")
