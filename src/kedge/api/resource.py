"""Resource: all that the server and the command line need to know about one kind."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from kedge.api import structs
from kedge.api.model import Document, Object, ObjectMeta
from kedge.machinery import extensions, names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity
from kedge.machinery.schema import Schema

T = TypeVar("T", bound=Object)

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True)
class Age:
    """A cell that shows how long ago a moment was: filled in when the table is sent, not cached."""

    timestamp: str

    def around(self, age: str) -> str:
        """The cell's text, once the age is known."""
        return age


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    cell: Callable[[Any], object]
    """The value shown for an object: text, number, boolean, or an Age."""
    type: str = "string"
    format: str = ""
    priority: int = 0
    """1 shows the column only with `-o wide`."""
    description: str = ""


def name_column() -> Column:
    return Column(name="Name", format="name", cell=lambda obj: obj.metadata.name)


def age_column() -> Column:
    return Column(name="Age", cell=lambda obj: Age(obj.metadata.creationTimestamp))


def created_column() -> Column:
    """What kinds without columns of their own show beside the name."""
    return Column(name="Created At", type="date", cell=lambda obj: obj.metadata.creationTimestamp)


@dataclass(frozen=True)
class Subresource:
    """A part of an object with an endpoint of its own. An empty kind means the object's own."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")


@dataclass(frozen=True)
class ScalePaths:
    """Where an object keeps what its scale subresource shows."""

    replicas: str = ".spec.replicas"
    observed: str = ".status.replicas"
    selector: str = ".spec.selector"


def unchanged(obj: Any) -> Any:
    return obj


def keep_new(new: Any, old: Any) -> Any:
    return new


def keep_metadata(new: Any, old: Any) -> Any:
    """Return the new object with the old one's metadata, except for who owns its fields."""
    kept = msgspec.structs.replace(old.metadata, managedFields=new.metadata.managedFields)
    return msgspec.structs.replace(new, metadata=kept)


def no_errors(obj: Any) -> Iterator[FieldError]:
    return iter(())


def no_update_errors(new: Any, old: Any) -> Iterator[FieldError]:
    return iter(())


def never(obj: Any) -> bool:
    return False


def no_grace(obj: Any, asked: int | None) -> int:
    return 0


def usual_effort() -> int:
    return 1


def no_warnings(obj: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource(Generic[T]):
    """One kind in one version: its type, its names, its rules."""

    type: type[T]
    """The Struct that holds it, or Document."""
    plural: str
    group: str = ""
    version: str = "v1"
    kind: str = ""
    """Defaults to the Struct's name."""
    singular: str = ""
    """Defaults to the kind in lower case."""
    list_kind: str = ""
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[Subresource] = ()
    scale: ScalePaths | None = None

    default: Callable[[T], T] = unchanged
    """Fill in what the writer left out."""
    begin: Callable[[T], T] = unchanged
    """The state in which a new object starts; its status was cleared already."""
    carry: Callable[[T, T], T] = keep_new
    """(new, old): what an update keeps of the old object; status was kept already."""
    carry_status: Callable[[T, T], T] = keep_new
    """(new, old): what a write to the status keeps of the old one."""
    validate: Callable[[T], Iterator[FieldError]] = no_errors
    """Everything wrong with the object, metadata excepted."""
    validate_new: Callable[[T], Iterator[FieldError]] = no_errors
    """What a new object, and only a new one, may not have."""
    validate_update: Callable[[T, T], Iterator[FieldError]] = no_update_errors
    """(new, old): everything wrong with the change, beyond `validate`."""
    validate_status: Callable[[T, T], Iterator[FieldError]] = no_update_errors
    """(new, old): everything wrong with a write to the status subresource."""
    warn: Callable[[T], Iterable[str]] = no_warnings
    """Sentences for the writer of an object that is legal but unwise."""
    effort: Callable[[], int] = usual_effort
    """How many times longer than usual validating a byte of an object may take."""
    keeps_posted_status: bool = False
    """Whether a new object may come with a status, as a node that registers itself does."""
    held: Callable[[T], bool] = never
    """Whether something besides finalizers keeps a doomed object."""
    ending: Callable[[T], T] = unchanged
    """What changes in an object when its deletion begins."""
    grace: Callable[[T, int | None], int] = no_grace
    """(object, seconds asked for): how long it may take to end."""
    answers_with_object: bool = False
    """Whether deleting one answers with its last state even when it is gone at once."""
    orphans_dependents: bool = False
    """Whether deleting one without a word about its dependents leaves them alone."""
    orphan_warning: str = ""
    """The warning for a client that leaves dependents alone without a word about them."""
    deprecation: str = ""
    """A sentence that every user of the resource is told."""
    check_name: Callable[[str], list[str]] = names.dns_subdomain
    columns: Sequence[Column] = field(default_factory=lambda: (name_column(), created_column()))
    row_conditions: Callable[[T], Sequence[Mapping[str, str]]] | None = None
    fields: Mapping[str, Callable[[T], str]] = field(default_factory=dict)
    """Field selectors beyond metadata.name and metadata.namespace."""
    counts_generation: bool = True
    """Whether metadata.generation rises when anything but metadata and status changes."""
    unconditional_update: bool = True
    """Whether a PUT may leave out the resourceVersion."""
    create_on_update: bool = False
    """Whether a PUT to a name that does not exist creates it."""
    ttl: int = 0
    """Seconds after which the store forgets the object; 0 keeps it."""
    store_as: "StoredAs | None" = None
    """If another resource's objects are stored: that resource and how to convert."""
    schema_source: Callable[[], Schema] | None = None
    """Where the schema of a Document comes from."""
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """What a stored document becomes when read, if its kind has changed since it was written."""
    measured: bool = False
    """Whether its objects are what nodes report now and then, and never stored."""
    custom: bool = False
    """Whether a CRD defines it: strategic merge patches are then refused."""
    registry: str = ""
    """Where objects are stored under /registry/; defaults to the plural (CRs: group/plural)."""

    def __post_init__(self) -> None:
        # A frozen dataclass fills in its own derived names only this way.
        if not self.kind:
            object.__setattr__(self, "kind", self.type.__name__)
        if not self.singular:
            object.__setattr__(self, "singular", self.kind.lower())
        if not self.list_kind:
            object.__setattr__(self, "list_kind", f"{self.kind}List")
        if not self.registry:
            home = f"{self.group}/{self.plural}" if self.measured else self.plural
            object.__setattr__(self, "registry", home)

    @cached_property
    def api_version(self) -> str:
        """`v1` or `apps/v1`, as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def prefix(self) -> str:
        """Where all objects of this kind are stored."""
        return f"/registry/{self.registry}/"

    @cached_property
    def schema(self) -> Schema:
        """What an object of this kind may hold."""
        if self.schema_source is not None:
            return self.schema_source()
        return structs.schema_of(self.type)

    @cached_property
    def extensions(self) -> extensions.Trail | None:
        """Finds what only kedge knows in a document of this kind; None if there is no such."""
        return None if self.custom else extensions.trail(self.schema)

    def upstream(self) -> "Resource[T]":
        """The same resource as Kubernetes has it, without what only kedge knows."""
        if self.custom:
            return self
        # Which kinds have any is not asked now: it takes a while, and a server is to start.
        return replace(self, schema_source=lambda: extensions.without(self.schema))

    @cached_property
    def typed(self) -> bool:
        return self.type is not Document

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.type, dec_hook=dec_hook)

    def key(self, namespace: str, name: str) -> str:
        """Where the store keeps one object."""
        return f"{self.prefix}{namespace}/{name}" if namespace else f"{self.prefix}{name}"

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

    def from_document(self, document: dict[str, Any]) -> T:
        """A fitted document as an object."""
        if self.typed:
            return msgspec.convert(document, self.type, dec_hook=dec_hook)
        content = {k: v for k, v in document.items() if k not in _TYPE_AND_META}
        metadata = msgspec.convert(document.get("metadata") or {}, ObjectMeta)
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
        """An object from bytes that this server wrote."""
        if self.typed:
            return self._decoder.decode(stored)
        return self.from_document(msgspec.json.decode(stored))


@dataclass(frozen=True, eq=False)
class StoredAs:
    """A second view of a resource that is stored as another one (events.k8s.io, autoscaling/v1)."""

    resource: Resource[Any]
    to_stored: Callable[[dict[str, Any]], dict[str, Any]]
    from_stored: Callable[[dict[str, Any]], dict[str, Any]]
    field_names: Mapping[str, str] = field(default_factory=dict)
    """This view's field selectors, in the words of the stored resource."""


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
