"""Strategy: the rules of a kind for create, update and delete.

The names follow the strategies of Kubernetes' registry (RESTCreateStrategy, RESTUpdateStrategy,
RESTDeleteStrategy).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from kedge.api.model import Object
from kedge.machinery import names
from kedge.machinery.errors import FieldError

T = TypeVar("T", bound=Object)


def unchanged(obj: Any) -> Any:
    return obj


def keep_new(new: Any, old: Any) -> Any:
    return new


def keep_metadata(new: Any, old: Any) -> Any:
    """Return the new object with the old one's metadata, except for managedFields."""
    kept = msgspec.structs.replace(old.metadata, managedFields=new.metadata.managedFields)
    return msgspec.structs.replace(new, metadata=kept)


def no_errors(obj: Any) -> Iterator[FieldError]:
    return iter(())


def no_update_errors(new: Any, old: Any) -> Iterator[FieldError]:
    return iter(())


def never(obj: Any) -> bool:
    return False


def no_grace_period(obj: Any, requested: int | None) -> int:
    return 0


def usual_cost() -> int:
    return 1


def no_warnings(obj: Any) -> Iterable[str]:
    return ()


def on_update(new: Any, old: Any) -> bool:
    return True


def not_on_update(new: Any, old: Any) -> bool:
    return False


def with_change_of_spec(new: Any, old: Any) -> bool:
    """Whether an update changes the spec."""
    return bool(new.spec != old.spec)


class Strategy(msgspec.Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """The rules of one kind that the generic verbs of the server call."""

    default: Callable[[T], T] = unchanged
    """Fill in the fields that the client left out."""
    check_name: Callable[[str], list[str]] = names.dns_subdomain
    """Return the errors of an object's name."""
    warnings: Callable[[T], Iterable[str]] = no_warnings
    """Return the warnings for the client that writes a valid but unwise object."""
    warns_on_update: Callable[[T, T], bool] = on_update
    """(new, old): whether an update of the main resource draws these warnings, too."""

    prepare_for_create: Callable[[T], T] = unchanged
    """Set the fields that a new object begins with; its status is already cleared."""
    prepare_for_update: Callable[[T, T], T] = keep_new
    """(new, old): keep the fields that an update cannot change; status is already kept."""
    prepare_for_status_update: Callable[[T, T], T] = keep_new
    """(new, old): keep the fields that a write to the status subresource cannot change."""
    prepare_for_delete: Callable[[T], T] = unchanged
    """Change the object when its deletion begins."""

    validate: Callable[[T], Iterator[FieldError]] = no_errors
    """Yield every error of the object except those of its metadata."""
    validate_new: Callable[[T], Iterator[FieldError]] = no_errors
    """Yield the errors that are errors only in a new object."""
    validate_update: Callable[[T, T], Iterator[FieldError]] = no_update_errors
    """(new, old): yield every error of the change, beyond those of `validate`."""
    validate_status: Callable[[T, T], Iterator[FieldError]] = no_update_errors
    """(new, old): yield every error of a write to the status subresource."""
    validation_cost: Callable[[], int] = usual_cost
    """Return how many times longer than usual the validation of one byte may take."""

    keeps_posted_status: bool = False
    """Whether a new object may come with a status, as a node that registers itself does."""
    counts_generation: bool = True
    """Whether metadata.generation rises when anything but metadata and status changes."""
    first_generation: int = 1
    """The metadata.generation of a new object, if changes raise it."""
    desired_state: Callable[[dict[str, Any]], object] | None = None
    """Return the part of a document whose change raises metadata.generation, if it is another."""
    allows_unconditional_update: bool = True
    """Whether a PUT may leave out the resourceVersion."""
    allows_create_on_update: bool = False
    """Whether a PUT to a name that does not exist creates the object."""

    blocks_deletion: Callable[[T], bool] = never
    """Whether something besides finalizers keeps an object whose deletion has begun."""
    grace_period: Callable[[T, int | None], int] = no_grace_period
    """(object, requested seconds): return the seconds that the object gets to end."""
    returns_deleted_object: bool = False
    """Whether a delete that takes effect immediately responds with the object's last state."""
    orphans_dependents: bool = False
    """Whether a delete without a propagation policy orphans the dependents."""
    ignores_propagation: bool = False
    """Whether a delete leaves finalizers under any propagation policy."""
    orphan_warning: str = ""
    """The warning for a client that orphans dependents without asking for it."""
    ttl: int = 0
    """Seconds after which the store drops the object; 0 keeps it."""
