"""The ledger of resource claims: which claims are prepared on the node, for which pods."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kedge.dra.messages import ClaimReference, PreparedDevice


class ClaimError(Exception):
    """A claim cannot be prepared or unprepared now; the text is the kubelet's."""


class ClaimKey(NamedTuple):
    """Names a claim. A claim of the same name that replaces it has the same key."""

    namespace: str
    name: str


class PreparedClaim(msgspec.Struct):
    """A claim that is prepared, or that its drivers may have begun to prepare."""

    key: ClaimKey
    uid: str
    pods: set[str] = msgspec.field(default_factory=set)
    """Uids of the pods on the node that use it."""
    drivers: dict[str, tuple[PreparedDevice, ...]] = msgspec.field(default_factory=dict)
    """The devices by driver. A driver that has prepared nothing yet has none."""
    is_prepared: bool = False
    """Whether all drivers have prepared it since the agent began. Not in the checkpoint: after a
    reboot of the machine the work of a driver is lost, and only the driver knows."""

    @property
    def reference(self) -> ClaimReference:
        return ClaimReference(namespace=self.key.namespace, name=self.key.name, uid=self.uid)

    def devices(self, request: str = "") -> Iterator[tuple[str, PreparedDevice]]:
        """Return drivers and devices: all, or those of one request."""
        for driver in sorted(self.drivers):
            for device in self.drivers[driver]:
                if not request or not device.request_names or request in device.request_names:
                    yield driver, device


class ClaimLedger:
    """The claims of one node."""

    def __init__(self, claims: Iterable[PreparedClaim] = ()) -> None:
        self.claims: dict[ClaimKey, PreparedClaim] = {each.key: each for each in claims}

    def add(self, key: ClaimKey, uid: str, drivers: Iterable[str], pod: str) -> PreparedClaim:
        """Note that a pod uses a claim, before a driver is called. Raises ClaimError if the claim
        of that name is another one."""
        known = self.claims.get(key)
        if known is None:
            empty: dict[str, tuple[PreparedDevice, ...]] = dict.fromkeys(drivers, ())
            known = self.claims[key] = PreparedClaim(key, uid, drivers=empty)
        elif known.uid != uid:
            raise ClaimError(
                f"old ResourceClaim with same name {key.name} and different UID {known.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        known.pods.add(pod)
        return known

    def of_pod(self, uid: str) -> list[PreparedClaim]:
        return [self.claims[key] for key in sorted(self.claims) if uid in self.claims[key].pods]

    def pods(self) -> set[str]:
        return {uid for claim in self.claims.values() for uid in claim.pods}

    def release(self, claim: PreparedClaim, pod: str) -> None:
        """Remove a pod from a claim, and the claim with its last pod."""
        claim.pods.discard(pod)
        if not claim.pods and self.claims.get(claim.key) is claim:
            del self.claims[claim.key]

    def with_device(self, driver: str, devices: set[tuple[str, str]]) -> set[str]:
        """Return the pods whose claims have any of these devices (pool and name) of a driver."""
        return {
            uid
            for claim in self.claims.values()
            for device in claim.drivers.get(driver, ())
            if (device.pool_name, device.device_name) in devices
            for uid in claim.pods
        }


def cdi_names(claims: Iterable[tuple[PreparedClaim, Sequence[str]]]) -> list[str]:
    """Return the CDI devices of the requests of claims; an empty request stands for all."""
    return list(
        dict.fromkeys(
            name
            for claim, requests in claims
            for request in requests
            for _, device in claim.devices(request)
            for name in device.cdi_device_ids
        )
    )
