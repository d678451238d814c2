"""Which stored objects move to another store, and in which form."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kedge.apiserver.authorization.default_rules import NODE_ROLE
from kedge.storage.store import ENCRYPTED, PROTOBUF, StoreEntry

ROOT: Final = "/registry/"
LEFT_BEHIND: Final = (
    f"{ROOT}events/",
    f"{ROOT}masterleases/",
    f"{ROOT}peerserverleases/",
    f"{ROOT}ranges/",
)
"""Events would never expire without their time. The others are notes of running kube-apiservers,
which make them again."""
ONLY_ELSEWHERE: Final = tuple(
    f"{ROOT}{plural}/{NODE_ROLE}" for plural in ("clusterroles", "clusterrolebindings")
)
"""The objects of 'kedge node --print-role', for nodes on a kube-apiserver. kedge's server has
narrower rules for nodes."""
_SET_BY_SERVERS: Final = (
    "uid",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
)
"""Fields of the metadata. Owners would be looked for by uids that no longer exist, and what they
own be deleted."""
_HEAD: Final = ("kind", "apiVersion", "metadata")


class UnreadableObject(Exception):
    """A stored value is not an object in JSON."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} {why}")


def moving(entries: Iterable[StoreEntry]) -> list[StoreEntry]:
    """Return the entries that move, the oldest first: owners exist before what they own."""
    kept = (each for each in entries if not each.key.startswith(LEFT_BEHIND))
    return sorted(kept, key=lambda each: each.created)


def coming(entries: Iterable[StoreEntry]) -> list[StoreEntry]:
    """Return the entries that move to a kedge server, in the same order."""
    return [each for each in moving(entries) if each.key not in ONLY_ELSEWHERE]


def normal_form(entry: StoreEntry) -> bytes:
    """Return a value as kedge writes it: kind, apiVersion and metadata first, no newline at the
    end, and no resourceVersion, which the store knows. Raises UnreadableObject."""
    document = _document(entry)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not document.get("kind"):
        raise UnreadableObject(entry.key, "is not an object of Kubernetes")
    for field in ("resourceVersion", "selfLink"):
        metadata.pop(field, None)
    head = {name: document.pop(name) for name in _HEAD if name in document}
    return msgspec.json.encode(head | document)


def documents(entries: Iterable[StoreEntry]) -> Iterator[dict[str, Any]]:
    """Yield objects for people and kubectl, without their status and the metadata that a server
    sets. Objects of controllers are left out: those make them again."""
    for entry in entries:
        document = _document(entry)
        metadata = document.get("metadata") or {}
        if any(each.get("controller") for each in metadata.get("ownerReferences") or ()):
            continue
        document.pop("status", None)
        for field in _SET_BY_SERVERS:
            metadata.pop(field, None)
        yield {name: document[name] for name in ("apiVersion", "kind") if name in document} | {
            name: value for name, value in document.items() if name not in ("apiVersion", "kind")
        }


def _document(entry: StoreEntry) -> dict[str, Any]:
    if entry.value.startswith(PROTOBUF):
        raise UnreadableObject(
            entry.key,
            "is stored as protobuf: start the kube-apiserver with"
            " --storage-media-type=application/json, and let it write all objects again"
            " ('kubectl get --all-namespaces KIND -o json | kubectl replace -f -')",
        )
    if entry.value.startswith(ENCRYPTED):
        raise UnreadableObject(
            entry.key,
            "is encrypted: start its server with an EncryptionConfiguration whose first provider is"
            " identity, and let it write all objects again",
        )
    try:
        found = msgspec.json.decode(entry.value)
    except msgspec.DecodeError as error:
        raise UnreadableObject(entry.key, f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableObject(entry.key, "is not an object of Kubernetes")
    return found
