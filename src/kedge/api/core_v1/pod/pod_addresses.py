"""The part of a Pod that nodes may see of the pods of other nodes: what network policies refer to.

It is a representation of pods that a client requests by its media type. The rest of a pod, such as
the values of its variables, is not sent.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kedge.api.resource import tolerant

AS: Final = "PodAddresses"
GROUP: Final = "network.kedge.dev"
MEDIA_TYPE: Final = f"application/json;as={AS};g={GROUP};v=v1"


class AddressMeta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Name and labels."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    labels: Mapping[str, str] | None = None


class AddressPort(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A port of a container."""

    name: str = ""
    containerPort: int = 0
    protocol: str = "TCP"


class AddressContainer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The ports of a container."""

    ports: Sequence[AddressPort] = ()
    restartPolicy: str = ""


class AddressSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Whether the pod has a network of its own, and its ports."""

    hostNetwork: bool = False
    containers: Sequence[AddressContainer] = ()
    initContainers: Sequence[AddressContainer] = ()


class AddressStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The address of the pod."""

    phase: str = ""
    podIP: str = ""


class PodAddresses(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Pod without everything that does not matter to network policies."""

    metadata: AddressMeta = AddressMeta()
    spec: AddressSpec = AddressSpec()
    status: AddressStatus = AddressStatus()


_decoder: Final = msgspec.json.Decoder(PodAddresses)


decode: Final = tolerant(_decoder)
"""Decode this representation, or a whole pod."""


def reduced(pod: bytes) -> bytes:
    """Return an encoded pod without the fields that this representation does not have."""
    content = msgspec.json.encode(_decoder.decode(pod))
    return b'{"kind":"Pod","apiVersion":"v1",%b' % content[1:]
