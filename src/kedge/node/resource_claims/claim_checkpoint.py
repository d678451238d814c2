"""The checkpoint of the claim ledger, in the format of the kubelet's `dra_manager_state`."""

import json
import logging
import zlib
from pathlib import Path
from typing import Any, Final

from kedge.dra.messages import PreparedDevice
from kedge.machinery import atomic
from kedge.node.resource_claims.claim_ledger import ClaimKey, ClaimLedger, PreparedClaim

log = logging.getLogger(__name__)

FILE_NAME: Final = "dra_manager_state"
_KIND: Final = "DRACheckpoint"
_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"

Json = dict[str, Any]


class ClaimCheckpoint:
    """The checkpoint file of one ledger."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._written = b""

    def write(self, ledger: ClaimLedger) -> None:
        """Write the file if its content has changed. Raises OSError."""
        content = encode(ledger)
        if content != self._written:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.write(self._path, content)
            self._written = content

    def read(self) -> ClaimLedger:
        """Return the stored ledger; an empty one if there is no file.

        An invalid file is kept beside the new one: it names the claims that drivers may still
        have prepared.
        """
        try:
            return decode(self._path.read_bytes())
        except FileNotFoundError:
            return ClaimLedger()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.error("invalid claim checkpoint file=%s error=%r", self._path, error)
            self._set_aside()
            return ClaimLedger()

    def _set_aside(self) -> None:
        try:
            self._path.rename(self._path.with_suffix(".invalid"))
        except OSError as error:
            log.warning("cannot keep the claim checkpoint error=%r", str(error))


def encode(ledger: ClaimLedger) -> bytes:
    claims = [_entry(ledger.claims[key]) for key in sorted(ledger.claims)]
    data = json.dumps({"kind": _KIND, "apiVersion": _VERSION, "ClaimInfoStateList": claims})
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def decode(content: bytes) -> ClaimLedger:
    """Return the ledger of a document. Raises ValueError, KeyError, TypeError or AttributeError if
    it is invalid."""
    document = json.loads(content)
    text = document["Data"]
    if document["Checksum"] != zlib.crc32(text.encode()):
        raise ValueError("checkpoint is corrupted")
    data = json.loads(text)
    return ClaimLedger(_claim(each) for each in data["ClaimInfoStateList"] or ())


def _entry(claim: PreparedClaim) -> Json:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.key.name,
        "Namespace": claim.key.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pods)},
        "DriverState": {
            driver: {"Devices": [_device_entry(each) for each in claim.drivers[driver]]}
            for driver in sorted(claim.drivers)
        },
    }


def _device_entry(device: PreparedDevice) -> Json:
    return {
        "PoolName": device.pool_name,
        "DeviceName": device.device_name,
        "ShareID": device.share_id or None,
        "RequestNames": list(device.request_names),
        "CDIDeviceIDs": list(device.cdi_device_ids),
    }


def _claim(entry: Json) -> PreparedClaim:
    return PreparedClaim(
        ClaimKey(entry["Namespace"], entry["ClaimName"]),
        entry["ClaimUID"],
        pods=set(entry["PodUIDs"]),
        drivers={
            driver: tuple(_device(each) for each in state["Devices"] or ())
            for driver, state in entry["DriverState"].items()
        },
    )


def _device(entry: Json) -> PreparedDevice:
    return PreparedDevice(
        pool_name=entry["PoolName"],
        device_name=entry["DeviceName"],
        share_id=entry["ShareID"],
        request_names=tuple(entry["RequestNames"] or ()),
        cdi_device_ids=tuple(entry["CDIDeviceIDs"] or ()),
    )
