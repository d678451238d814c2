"""View: the form in which a client reads the objects of a resource, whole or in outline."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from kedge.api.model import OwnerReference
from kedge.api.resource import Resource, T, tolerant

V = TypeVar("V")
W = TypeVar("W")

JSON = "application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class View(msgspec.Struct, Generic[V], frozen=True, eq=False):
    """The requested representation, and the conversion of each received object."""

    resource: Resource[Any]
    decode: Callable[[bytes], V]
    accept: str = JSON
    """The media type of one object."""
    accept_list: str = JSON
    """The media type of a list."""
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further query parameters of a list or watch."""
    or_whole: bool = False
    """Whether a server that does not have the representation is asked for whole objects."""


class OutlineMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of an object's metadata that tells who it is and whether it may stay."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Outline(msgspec.Struct, frozen=True, gc=False):
    """An object of any kind, reduced to what controllers need of every kind."""

    metadata: OutlineMeta = OutlineMeta()


def objects(resource: Resource[T]) -> View[T]:
    """Whole objects."""
    return View(resource, resource.decode)


def outlines(resource: Resource[Any]) -> View[Outline]:
    """Metadata only: the server does not even send the rest."""
    return View(resource, _outline, PARTIAL, PARTIAL_LIST)


def sketches(resource: Resource[Any], type_: type[W], **parameters: str) -> View[W]:
    """Only those fields of each object that a Struct declares."""
    return View(resource, tolerant(msgspec.json.Decoder(type_)), parameters=parameters)


_outline = tolerant(msgspec.json.Decoder(Outline))
