"""StorageClass: how volumes for claims are made, and when they are bound."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kedge.api.builtin.resources import built_in
from kedge.api.model import Model, Object

CLASSES: Final = built_in("storage.k8s.io", "storageclasses")
IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_BETA_IS_DEFAULT: Final = "storageclass.beta.kubernetes.io/is-default-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT: Final = "WaitForFirstConsumer"


class TopologyRequirement(Model):
    """A label of nodes, and the values that it may have."""

    key: str = ""
    values: Sequence[str] = ()


class TopologyTerm(Model):
    """Conditions on the labels of a node; all must hold."""

    matchLabelExpressions: Sequence[TopologyRequirement] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(each.key) in each.values for each in self.matchLabelExpressions)


class StorageClass(Object):
    """A class of storage."""

    provisioner: str = ""
    parameters: Mapping[str, str] = {}
    reclaimPolicy: str = ""
    mountOptions: Sequence[str] = ()
    allowVolumeExpansion: bool | None = None
    volumeBindingMode: str = ""
    allowedTopologies: Sequence[TopologyTerm] = ()

    @property
    def waits(self) -> bool:
        """Whether claims are bound only once a pod that uses them has a node."""
        return self.volumeBindingMode == WAIT

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether volumes may be made for a node with these labels."""
        terms = self.allowedTopologies
        return not terms or any(term.matches(labels) for term in terms)


decode: Final = msgspec.json.Decoder(StorageClass).decode


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class: of several the newest, then the first by name."""
    found = sorted((each for each in classes if _is_default(each)), key=_name)
    found.sort(key=lambda each: each.metadata.creationTimestamp, reverse=True)
    return found[0] if found else None


def _is_default(storage_class: StorageClass) -> bool:
    annotations = storage_class.metadata.annotations
    return "true" in (annotations.get(IS_DEFAULT), annotations.get(_BETA_IS_DEFAULT))


def _name(storage_class: StorageClass) -> str:
    return storage_class.metadata.name
