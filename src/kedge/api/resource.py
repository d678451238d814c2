"""Resource: one kind as the server, the controllers and the command line use it."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.api import structs
from kedge.api.identity import ResourceIdentity
from kedge.api.metadata_checks import MetadataChecks, checks_of
from kedge.api.model import Document, Object, ObjectMeta
from kedge.api.presentation import Presentation
from kedge.api.protobuf.messages import is_known, message_name
from kedge.api.strategy import Strategy
from kedge.machinery import extensions
from kedge.machinery.quantity import Quantity
from kedge.machinery.schema import Schema

T = TypeVar("T", bound=Object)
V = TypeVar("V")

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


class ObjectSource(Enum):
    """The component of a server that answers reads of a resource."""

    STORE = "store"
    NODE_REPORTS = "node reports"
    """Nodes report the objects; each report replaces the one before."""
    USAGE_AGGREGATES = "usage aggregates"
    """Sums over the pods that nodes report, made when they are read."""
    SCHEDULER = "scheduler"
    """The scheduler has the objects in memory."""


class Subresource(msgspec.Struct, frozen=True):
    """A part of an object with an endpoint of its own. An empty kind means the object's own."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")


class ScalePaths(msgspec.Struct, frozen=True):
    """The paths of the fields that the scale subresource shows."""

    replicas: str = ".spec.replicas"
    observed: str = ".status.replicas"
    selector: str = ".spec.selector"


class VersionConversion(Protocol):
    """The conversion of objects whose versions differ in more than their apiVersion, by a webhook.

    Objects are cached as they are stored, each in the version in which it was written.
    """

    def is_stored_form(self, item: Any) -> bool:
        """Whether an item has the version in which objects are stored now."""
        ...

    async def stored(self, value: bytes) -> bytes:
        """Return an encoded object in the version in which it is stored."""
        ...

    async def document(self, document: dict[str, Any], api_version: str) -> dict[str, Any]:
        """Return an object that is not stored in another version."""
        ...

    async def unpruned(self, value: bytes, api_version: str) -> dict[str, Any]:
        """Return an encoded object in another version, as the webhook answers."""
        ...

    async def items(self, items: Sequence[Any], api_version: str) -> list[Any]:
        """Return cached items in a version."""
        ...


class Resource(
    ResourceIdentity, Generic[T], frozen=True, kw_only=True, eq=False, dict=True, weakref=True
):
    """One kind in one version: its identity and type, its strategy and its presentation.

    It is an Identity rather than holding one because names are what most code asks for, and because
    routing, get and list ask for them several times per request.
    """

    type: type[T]
    """The Struct of the objects, or Document. Its name is the default of `kind`."""
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Sequence[Subresource] = ()
    scale: ScalePaths | None = None
    strategy: Strategy[T] = msgspec.field(default_factory=Strategy)
    presentation: Presentation[T] = msgspec.field(default_factory=Presentation)

    custom: bool = False
    """Whether a CRD defines the kind: strategic merge patches are then refused."""
    source: ObjectSource = ObjectSource.STORE
    """The component that has the objects; only those of the store can be written."""
    store_as: "StoredAs | None" = None
    """For a kind that is stored as another one: that kind and the conversion."""
    conversion: VersionConversion | None = None
    """For a kind whose versions a webhook converts. Reads then wait for it."""
    schema_source: Callable[[], Schema] | None = None
    """Returns the schema of a Document; a Struct is its own schema."""
    version_schemas: Mapping[str, Callable[[], Schema]] = msgspec.field(default_factory=dict)
    """Return the schema of each version of a custom kind, by apiVersion, served or not."""
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Converts a stored document whose kind has changed since it was written."""

    def __post_init__(self) -> None:
        self._set_default("kind", self.type.__name__)
        super().__post_init__()

    @cached_property
    def schema(self) -> Schema:
        """The schema of the objects."""
        if self.schema_source is not None:
            return self.schema_source()
        return structs.schema_of(self.type)

    @property
    def is_schema_made(self) -> bool:
        """Whether `schema` is at hand. That of a large custom kind takes a tenth of a second."""
        return "schema" in self.__dict__

    @cached_property
    def relabelling(self) -> "StoredAs | None":
        """The conversion from and to the stored kind, if the server makes it by itself."""
        return self.store_as if self.conversion is None else None

    @cached_property
    def extensions(self) -> extensions.ExtensionPaths | None:
        """Finds what only kedge knows in a document of this kind; None if there is no such."""
        return None if self.custom else extensions.trail(self.schema)

    def upstream(self) -> "Resource[T]":
        """The same resource as Kubernetes has it, without what only kedge knows."""
        if self.custom:
            return self
        # Which kinds have any is not asked now: it takes a while, and a server is to start.
        return replace(self, schema_source=lambda: extensions.without(self.schema))

    @cached_property
    def metadata_checks(self) -> MetadataChecks:
        """How often errors of changed metadata are reported."""
        return checks_of(self.group, self.kind, custom=self.custom)

    @cached_property
    def message(self) -> str:
        """The protobuf message of the objects; empty if they have none."""
        name = message_name(self.api_version, self.kind)
        return name if is_known(name) and not self.custom else ""

    @cached_property
    def is_stored(self) -> bool:
        return self.source is ObjectSource.STORE

    @cached_property
    def typed(self) -> bool:
        return self.type is not Document

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    @cached_property
    def _decode(self) -> Callable[[bytes], T]:
        return tolerant(msgspec.json.Decoder(self.type, dec_hook=dec_hook))

    @cached_property
    def decode_fields(self) -> Callable[[bytes], Any]:
        """Decodes what the readers of field selectors need of an object."""
        source = self.presentation.field_source
        return self.decode if source is None else msgspec.json.Decoder(source).decode

    @cached_property
    def decode_row(self) -> Callable[[bytes], Any]:
        """Decodes what the columns show of an object."""
        source = self.presentation.row_source
        return self.decode if source is None else tolerant(msgspec.json.Decoder(source()))

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

    def from_document(self, document: dict[str, Any]) -> T:
        """A fitted document as an object."""
        if self.typed:
            return converted(document, self.type, dec_hook=dec_hook)
        content = {k: v for k, v in document.items() if k not in _TYPE_AND_META}
        metadata = converted(document.get("metadata") or {}, ObjectMeta)
        return self.type(  # type: ignore[call-arg]
            apiVersion=self.api_version, kind=self.kind, metadata=metadata, content=content
        )

    def to_document(self, obj: T) -> dict[str, Any]:
        """The object as a plain document, kind and apiVersion stamped."""
        head = {"kind": self.kind, "apiVersion": self.api_version}
        if isinstance(obj, Document):
            return head | {"metadata": msgspec.to_builtins(obj.metadata)} | obj.content
        document: dict[str, Any] = msgspec.to_builtins(obj, enc_hook=enc_hook)
        metadata = document.pop("metadata", {})
        return head | {"metadata": metadata} | document | head

    def decode(self, stored: bytes) -> T:
        """An object from bytes that a server wrote: kedge, or one that prints nulls."""
        if self.typed:
            return self._decode(stored)
        return self.from_document(msgspec.json.decode(stored))


class StoredAs(msgspec.Struct, frozen=True, eq=False):
    """A second view of a resource that is stored as another one (events.k8s.io, autoscaling/v1)."""

    resource: Resource[Any]
    to_stored: Callable[[dict[str, Any]], dict[str, Any]]
    from_stored: Callable[[dict[str, Any]], dict[str, Any]]
    field_names: Mapping[str, str] = msgspec.field(default_factory=dict)
    """This view's field selectors, in the words of the stored resource."""


def tolerant(decoder: msgspec.json.Decoder[V]) -> Callable[[bytes], V]:
    """Return a function that decodes with the decoder, and takes null for a value that is not set.

    Bytes without such nulls, as kedge writes them, are decoded once: only a failure leads to the
    second, slower way.
    """

    def decode(body: bytes) -> V:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            document = msgspec.json.decode(body)
            return converted(document, decoder.type, dec_hook=decoder.dec_hook)

    return decode


def converted(
    document: Any, type_: type[V], *, dec_hook: Callable[[type, Any], Any] | None = None
) -> V:
    """Convert a parsed document to a type; null again means that a value is not set."""
    try:
        return msgspec.convert(document, type_, dec_hook=dec_hook)
    except msgspec.ValidationError:
        from kedge.machinery.foreign_json import without_nulls

        return msgspec.convert(without_nulls(document), type_, dec_hook=dec_hook)


_TYPE_AND_META = frozenset(("kind", "apiVersion", "metadata"))


def dec_hook(wanted: type, value: Any) -> Any:
    """Scalars that msgspec does not know."""
    if wanted is Quantity:
        return Quantity.of(value)
    raise TypeError(f"no way to make a {wanted.__name__}")


def enc_hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"no way to write a {type(value).__name__}")
