"""The checkpoint of the device ledger, from which a restarted agent knows all allocations.

The fields are those of the kubelet's checkpoint. The kubelet's checksum can be computed only by Go
programs, so this file has its own name and a portable checksum. It is not in the directory where
plugins register, because another node may use that directory later.
"""

import base64
import json
import logging
import zlib
from pathlib import Path
from typing import Any, Final

from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.machinery import atomic
from kedge.node.devices.ledger import (
    ANYWHERE,
    DeviceAllocation,
    DeviceLedger,
    DeviceOwner,
    DeviceReleaseNotice,
    DeviceResource,
    in_order,
)

log = logging.getLogger(__name__)

NAME: Final = "kedge_internal_checkpoint"

Json = dict[str, Any]


class LedgerCheckpoint:
    """The checkpoint file of one ledger."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._written = b""

    def exists(self) -> bool:
        return self._path.exists()

    def write(self, ledger: DeviceLedger) -> None:
        """Write the file if its content has changed. Raises OSError."""
        content = encode(ledger)
        if content != self._written:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.write(self._path, content)
            self._written = content

    def read(self) -> DeviceLedger:
        """Return the stored ledger; an empty one if there is no valid file."""
        try:
            content = self._path.read_bytes()
            return decode(content)
        except FileNotFoundError:
            return DeviceLedger()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("invalid device checkpoint file=%s error=%r", self._path, error)
            return DeviceLedger()


def encode(ledger: DeviceLedger) -> bytes:
    data: Json = {
        "PodDeviceEntries": [_entry(ledger.holdings[key]) for key in sorted(ledger.holdings)],
        "RegisteredDevices": {
            resource: in_order(each for each, known in offer.devices.items() if known.healthy)
            for resource, offer in sorted(ledger.offers.items())
        },
        "Options": {
            resource: _named_options(offer.options)
            for resource, offer in sorted(ledger.offers.items())
        },
        "Releases": [
            _owner(each.owner) | {"ResourceName": each.resource, "DeviceIDs": list(each.ids)}
            for each in ledger.releases
        ],
    }
    return json.dumps({"Data": data, "Checksum": checksum(data)}, indent=1).encode()


def decode(content: bytes) -> DeviceLedger:
    """Return the ledger of a document. Raises ValueError, KeyError, TypeError or AttributeError if
    it is invalid."""
    document = json.loads(content)
    data = document["Data"]
    if document["Checksum"] != checksum(data):
        raise ValueError("checkpoint is corrupted")
    ledger = DeviceLedger()
    for resource in data["RegisteredDevices"]:
        # The devices themselves are not stored: their plugin lists them again.
        told = data.get("Options", {}).get(resource, {})
        ledger.offers[resource] = DeviceResource(options=_options(told))
    for entry in data["PodDeviceEntries"]:
        holding = _holding(entry)
        owner = holding.owner
        ledger.holdings[owner.pod, owner.container, holding.resource] = holding
        ledger.offers.setdefault(holding.resource, DeviceResource())
    for entry in data.get("Releases", ()):
        ids = tuple(entry["DeviceIDs"])
        ledger.releases.append(DeviceReleaseNotice(_read_owner(entry), entry["ResourceName"], ids))
    return ledger


def checksum(data: Json) -> int:
    """Return the CRC-32 of the data as JSON with sorted keys and no white space."""
    return zlib.crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def _entry(holding: DeviceAllocation) -> Json:
    by_place: dict[str, list[str]] = {}
    for each in holding.ids:
        for place in holding.places.get(each) or (ANYWHERE,):
            by_place.setdefault(str(place), []).append(each)
    return _owner(holding.owner) | {
        "ResourceName": holding.resource,
        "DeviceIDs": by_place,
        "AllocResp": base64.b64encode(holding.response).decode(),
    }


def _holding(entry: Json) -> DeviceAllocation:
    places: dict[str, list[int]] = {}
    for place, ids in entry["DeviceIDs"].items():
        for each in ids:
            places.setdefault(each, []).append(int(place))
    return DeviceAllocation(
        owner=_read_owner(entry),
        resource=entry["ResourceName"],
        ids=tuple(in_order(places)),
        places={each: tuple(p for p in found if p != ANYWHERE) for each, found in places.items()},
        response=base64.b64decode(entry["AllocResp"]),
    )


def _owner(owner: DeviceOwner) -> Json:
    return {
        "PodUID": owner.pod,
        "ContainerName": owner.container,
        "PodName": owner.pod_name,
        "PodNamespace": owner.namespace,
    }


def _read_owner(entry: Json) -> DeviceOwner:
    return DeviceOwner(
        entry["PodUID"],
        entry["ContainerName"],
        entry.get("PodName", ""),
        entry.get("PodNamespace", ""),
    )


def _named_options(options: DevicePluginOptions) -> Json:
    return {
        "PreStartRequired": options.pre_start_required,
        "GetPreferredAllocationAvailable": options.get_preferred_allocation_available,
        "ReleaseRequired": options.release_required,
    }


def _options(told: Json) -> DevicePluginOptions:
    return DevicePluginOptions(
        pre_start_required=bool(told.get("PreStartRequired")),
        get_preferred_allocation_available=bool(told.get("GetPreferredAllocationAvailable")),
        release_required=bool(told.get("ReleaseRequired")),
    )
