"""Struct -> Schema: fields and keys from annotations, descriptions from docstrings."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

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
_UNIONS = (Union, UnionType)
_LISTS = (list, tuple, Sequence)
_MAPS = (dict, Mapping)
_SCALARS: dict[Any, dict[str, Any]] = {
    Quantity: {"type": "quantity"},
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    bool: {"type": "boolean"},
}
_made: dict[type, Schema] = {}


def schema_of(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a Struct type. The same type always gives the same node."""
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
    for field in msgspec.structs.fields(struct):
        member = _described(_node(field.type), docs.get(field.name, ""))
        if _is_struct(field.type):
            # Never absent, so OpenAPI publishes that it defaults to nothing inside.
            member = msgspec.structs.replace(member, keywords={"default": {}} | member.keywords)
        if field.encode_name in node.required:
            member = with_zero(member)
        node.fields[field.encode_name] = member
    return node


def parts_of(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The Structs in the fields of a Struct."""
    for field in msgspec.structs.fields(struct):
        yield from _structs_in(field.type)


def _structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if _is_struct(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _structs_in(argument)


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
    # Not with `inspect.getsource`, which keeps all lines of the file and a map of all modules. Not
    # with the module's loader: that of pytest, which loads kedge as a plugin, has no sources.
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
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


def _node(annotation: Any) -> Schema:
    bare, extra = _bare(annotation)
    if "type" in extra:
        return Schema(**extra)
    node = _plain(bare)
    return msgspec.structs.replace(node, **extra) if extra else node


def _bare(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """The type without what is annotated to it, and the schema's words among that."""
    if not hasattr(annotation, "__metadata__"):
        return annotation, {}
    extra: dict[str, Any] = {}
    for meta in annotation.__metadata__:
        if isinstance(meta, msgspec.Meta) and meta.extra:
            extra |= meta.extra
    return annotation.__origin__, extra


def _plain(annotation: Any) -> Schema:
    if _is_struct(annotation):
        return schema_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in _UNIONS:
        return _node(next(each for each in arguments if each is not NoneType))
    if origin in _LISTS:
        return Schema(type="list", items=_node(arguments[0]))
    if origin in _MAPS:
        return Schema(type="map", items=_node(arguments[1]))
    made = _SCALARS.get(annotation)
    if made is None:
        raise TypeError(f"no schema for {annotation}")
    return Schema(**made)


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
