"""The pods of this node that have an address, and the wait for their rules.

A pod gets its address before the API knows it. Writers of rules about pods listen here, and a new
pod has no network until its rules are written.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address
from typing import Final, NamedTuple

ADMIT_SECONDS: Final = 10.0
"""How long a new pod waits for its rules; its sandbox is tried again later."""


class AttachedPod(NamedTuple):
    """A pod as it was when it got its address."""

    namespace: str
    name: str
    labels: Mapping[str, str]


Listener = Callable[[IPv4Address, AttachedPod], bool]
"""Called with a pod that got an address or gave it back. Returns whether the pod has to wait until
the listener calls `confirm`."""


class AttachedPods:
    """The pods of this node by address."""

    def __init__(self) -> None:
        self.by_address: Final[dict[IPv4Address, AttachedPod]] = {}
        self._addresses: dict[tuple[str, str], IPv4Address] = {}
        self._listener: Listener = lambda _, pod: False
        self._waiting: dict[IPv4Address, asyncio.Event] = {}

    def listen(self, listener: Listener) -> None:
        self._listener = listener

    def address_of(self, namespace: str, name: str) -> IPv4Address | None:
        return self._addresses.get((namespace, name))

    async def admit(self, address: IPv4Address, pod: AttachedPod) -> None:
        """Return when the rules of a new pod are written. Raises TimeoutError."""
        if not self.adopt(address, pod):
            return
        self._waiting[address] = written = asyncio.Event()
        try:
            async with asyncio.timeout(ADMIT_SECONDS):
                await written.wait()
        finally:
            self._waiting.pop(address, None)

    def adopt(self, address: IPv4Address, pod: AttachedPod) -> bool:
        """Note a pod; return whether its rules are not written yet. After a restart of the agent,
        pods have their network already."""
        self.by_address[address] = pod
        self._addresses[pod.namespace, pod.name] = address
        return self._listener(address, pod)

    def release(self, address: IPv4Address) -> None:
        """Forget the pod that had this address. Idempotent."""
        pod = self.by_address.pop(address, None)
        if pod is None:
            return
        if self._addresses.get((pod.namespace, pod.name)) == address:
            del self._addresses[pod.namespace, pod.name]
        self._listener(address, pod)

    def waiting(self) -> dict[IPv4Address, AttachedPod]:
        """Return the pods that wait for their rules."""
        held = self.by_address
        return {each: held[each] for each in self._waiting if each in held}

    def confirm(self, addresses: Iterable[IPv4Address]) -> None:
        """Let pods have their network."""
        for each in addresses:
            if each in self._waiting:
                self._waiting[each].set()
