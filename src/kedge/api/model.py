"""Model, Object, ObjectMeta: the base of every API type, and how a type declares its lists."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, dataclass_transform

import msgspec

from kedge.machinery.quantity import Quantity

LARGEST_OBJECT: Final = 1536 << 10
"""Bytes of a stored object. etcd has the same limit, so a cluster can move there. Bodies may have
twice as much, but every later reader and controller pays for what is stored. As in kube-apiserver,
an object that is larger only because of its managedFields loses them."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ModelMeta(msgspec.StructMeta):
    """Tells type checkers once that every Model is frozen and takes keywords only."""


class Model(
    msgspec.Struct, metaclass=ModelMeta, frozen=True, kw_only=True, omit_defaults=True, gc=False
):
    """Base of all API types. Immutable: change one with `msgspec.structs.replace`. No cycle can go
    through one, so searches for garbage leave them out.

    Fields keep their wire names and have zero defaults, which stay off the wire; where zero means
    something the type is `int | None`. A class may set `__required__` (fields that OpenAPI calls
    required) and `__atomic__` (server-side apply owns it as a whole).
    """


def null() -> None:
    """The default of a field that is null on the wire where it is not set:
    `eventTime: MicroTime | None = field(default_factory=null)`."""


def keyed(*keys: str, merge: str = "", retain: bool = False) -> msgspec.Meta:
    """A list whose elements `keys` tell apart, in patches `merge` (else the first key)."""
    patch = {"merge_key": merge or keys[0], "retain_keys": retain}
    return msgspec.Meta(extra={"list_type": "map", "list_keys": keys, "merge": True, **patch})


def listed_by(*keys: str) -> msgspec.Meta:
    """A list that server-side apply merges by `keys` and strategic merge patches replace."""
    return msgspec.Meta(extra={"list_type": "map", "list_keys": keys})


def merged(key: str = "", *, retain: bool = False) -> msgspec.Meta:
    """A list that only strategic merge patches merge, by `key` or (of plain values) as a set."""
    return msgspec.Meta(extra={"merge": True, "merge_key": key, "retain_keys": retain})


SET = msgspec.Meta(extra={"list_type": "set"})
"""A list of plain values in which each occurs once."""

MERGED_SET = msgspec.Meta(extra={"list_type": "set", "merge": True})
"""A set that strategic merge patches add to."""

ATOMIC = msgspec.Meta(extra={"atomic": True})
"""A map or object that server-side apply owns as a whole."""

RETAIN_KEYS = msgspec.Meta(extra={"retain_keys": True})
"""A union: a strategic merge patch says with $retainKeys which member stays."""


def defaults_to(value: object) -> msgspec.Meta:
    """A field whose default is part of the key of list items; OpenAPI publishes the default."""
    return msgspec.Meta(extra={"keywords": {"default": value}})


EXTENSION = msgspec.Meta(extra={"extension": True})
"""A field that only kedge has: a write that sets it gets a warning."""


def spelling_of(name: str) -> msgspec.Meta:
    """Another spelling of an extension: taken and published, but stored under this name."""
    return msgspec.Meta(extra={"extension": True, "spells": name})


def pairs(name: str, value: str) -> msgspec.Meta:
    """A list of names and values that kedge also takes as a mapping, with a warning."""
    return msgspec.Meta(extra={"pairs": (name, value)})


KEEP_EMPTY = msgspec.Meta(extra={"keep_empty": True})
"""A list for which empty means something else than absent."""


def _scalar(type_: str, format_: str = "") -> msgspec.Meta:
    return msgspec.Meta(extra={"type": type_, "format": format_})


Time = Annotated[str, _scalar("time", "date-time")]
MicroTime = Annotated[str, _scalar("micro-time", "date-time")]
Bytes = Annotated[str, _scalar("bytes", "byte")]
"""Base64 text, as it stands on the wire."""
Int32 = Annotated[int, _scalar("integer", "int32")]
Int64 = int
IntOrString = Annotated[int | str, _scalar("int-or-string")]
Json = Annotated[Any, msgspec.Meta(extra={"type": "any", "atomic": True})]
"""Any JSON value, kept as it is."""
ResourceList = Mapping[str, Quantity]


class OwnerReference(Model):
    """An object that this one belongs to; when all owners are gone this one is collected."""

    __required__ = ("apiVersion", "kind", "name", "uid")
    __atomic__ = True

    apiVersion: str = ""
    """API version of the owner."""
    kind: str = ""
    """Kind of the owner."""
    name: str = ""
    """Name of the owner."""
    uid: str = ""
    """Uid of the owner; another object of the same name is another owner."""
    controller: bool | None = None
    """Whether the owner is the controller that manages this object."""
    blockOwnerDeletion: bool | None = None
    """Whether foreground deletion of the owner waits for this object."""


class ManagedFieldsEntry(Model):
    """The fields that one manager has set in one way."""

    manager: str = ""
    """The manager of the fields."""
    operation: str = ""
    """How: Apply or Update."""
    apiVersion: str = ""
    """The version of the resource in which the fields are named."""
    time: Time = ""
    """When the entry last changed."""
    fieldsType: str = ""
    """The format of the fields; always FieldsV1."""
    fieldsV1: Json = None
    """The set of fields, as a tree."""
    subresource: str = ""
    """The subresource through which they were set, if any."""


class ObjectMeta(Model):
    """The metadata of every stored object: name, labels, annotations, owners, history."""

    name: str = ""
    """Unique among the objects of one kind in one namespace. Cannot be changed."""
    generateName: str = ""
    """A prefix from which the server makes a unique name, used if no name is given."""
    namespace: str = ""
    """The namespace that the object lives in; empty for kinds that live in none."""
    selfLink: str = ""
    """No longer set by any server."""
    uid: str = ""
    """Tells this object from any other that ever had its name. Set by the server."""
    resourceVersion: str = ""
    """The state of the store in which the object was last written. Opaque; set by the server."""
    generation: int = 0
    """Counts the changes of the desired state. Set by the server."""
    creationTimestamp: Time = ""
    """CreationTimestamp is a timestamp of when the server made the object."""
    deletionTimestamp: Time = ""
    """When the object is to be gone; set by the server once deletion was asked for."""
    deletionGracePeriodSeconds: int | None = None
    """How long the object may take to end, counted from the request to delete it."""
    labels: Mapping[str, str] = {}
    """Short keys and values by which objects are selected."""
    annotations: Mapping[str, str] = {}
    """Keys and values that tools attach; not used for selection."""
    ownerReferences: Annotated[Sequence[OwnerReference], keyed("uid")] = ()
    """The objects this one depends on."""
    finalizers: Annotated[Sequence[str], MERGED_SET] = ()
    """Names of those who must act before the object may go."""
    managedFields: Annotated[Sequence[ManagedFieldsEntry], KEEP_EMPTY] = ()
    """Which manager owns which field."""


class ListMeta(Model):
    """The metadata of a list of objects."""

    selfLink: str = ""
    """No longer set by any server."""
    resourceVersion: str = ""
    """The state of the store that the list shows; a watch may start from it."""
    continue_: str = msgspec.field(default="", name="continue")
    """A token with which to ask for the rest of the list."""
    remainingItemCount: int | None = None
    """How many objects follow in later pages, if known."""


class Object(Model):
    """A thing that the API stores."""

    apiVersion: str = ""
    """Group and version of the type, for instance apps/v1."""
    kind: str = ""
    """Name of the type, for instance Deployment."""
    metadata: ObjectMeta = ObjectMeta()
    """Name, labels and history of the object."""


class Document(Object):
    """An object of a kind without its own Struct: typed metadata, the rest as a plain document."""

    content: dict[str, Any] = {}
    """Every other top-level field."""


class LabelSelectorRequirement(Model):
    """One condition on a label."""

    __required__ = ("key", "operator")

    key: str = ""
    """The label's key."""
    operator: str = ""
    """In, NotIn, Exists or DoesNotExist."""
    values: Sequence[str] = ()
    """The values that In and NotIn compare with; empty for the others."""


class LabelSelector(Model):
    """Selects objects by their labels; all conditions must hold. Empty selects everything."""

    __atomic__ = True

    matchLabels: Mapping[str, str] = {}
    """Labels that must have exactly these values."""
    matchExpressions: Sequence[LabelSelectorRequirement] = ()
    """Further conditions."""


class Condition(Model):
    """One aspect of an object's state, as last observed."""

    __required__ = ("type", "status", "lastTransitionTime", "reason", "message")

    type: str = ""
    """The type of the condition, in CamelCase."""
    status: str = ""
    """True, False or Unknown."""
    observedGeneration: int = 0
    """The generation of the object that was observed."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one CamelCase word."""
    message: str = ""
    """Why, for people."""
