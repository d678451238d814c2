"""The claim ledger in a file."""

import json
import logging
import zlib
from pathlib import Path

import pytest

from kedge.dra.messages import PreparedDevice
from kedge.node.resource_claims.claim_checkpoint import FILE_NAME, ClaimCheckpoint
from kedge.node.resource_claims.claim_ledger import ClaimKey, ClaimLedger

KEY = ClaimKey("default", "c")


def written(directory: Path) -> ClaimLedger:
    ledger = ClaimLedger()
    claim = ledger.add(KEY, "u", ["d", "other"], "pod")
    device = PreparedDevice(
        pool_name="p",
        device_name="0",
        share_id="s",
        request_names=("r",),
        cdi_device_ids=("v/c=0",),
    )
    claim.drivers["d"] = (device,)
    claim.is_prepared = True
    ClaimCheckpoint(directory).write(ledger)
    return ledger


def test_everything_comes_back_but_is_prepared_again(tmp_path: Path) -> None:
    before, after = written(tmp_path), ClaimCheckpoint(tmp_path).read()
    before.claims[KEY].is_prepared = False
    assert after.claims == before.claims


def test_the_file_is_that_of_the_kubelet(tmp_path: Path) -> None:
    written(tmp_path)
    document = json.loads((tmp_path / FILE_NAME).read_text())
    assert document["Checksum"] == zlib.crc32(document["Data"].encode())
    data = json.loads(document["Data"])
    assert data["apiVersion"] == "checkpoint.dra.kubelet.k8s.io/v1"
    assert data["ClaimInfoStateList"] == [
        {
            "ClaimUID": "u",
            "ClaimName": "c",
            "Namespace": "default",
            "PodUIDs": {"pod": {}},
            "DriverState": {
                "d": {
                    "Devices": [
                        {
                            "PoolName": "p",
                            "DeviceName": "0",
                            "ShareID": "s",
                            "RequestNames": ["r"],
                            "CDIDeviceIDs": ["v/c=0"],
                        }
                    ]
                },
                "other": {"Devices": []},
            },
        }
    ]


def test_without_a_file_there_are_no_claims(tmp_path: Path) -> None:
    assert ClaimCheckpoint(tmp_path).read().claims == {}


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"Data": "{}", "Checksum": 1}', b"[1]"])
def test_a_damaged_file_is_set_aside(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(damage)
    with caplog.at_level(logging.ERROR):
        assert ClaimCheckpoint(tmp_path).read().claims == {}
    assert "invalid claim checkpoint" in caplog.text
    assert (tmp_path / f"{FILE_NAME}.invalid").read_bytes() == damage


def test_the_same_content_is_written_once(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    checkpoint = ClaimCheckpoint(tmp_path)
    checkpoint.write(ledger)
    (tmp_path / FILE_NAME).unlink()
    checkpoint.write(ledger)
    assert not (tmp_path / FILE_NAME).exists()
