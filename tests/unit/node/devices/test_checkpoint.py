"""The ledger in a file."""

import json
import logging
from pathlib import Path

import pytest

from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.node.devices.checkpoint import NAME, LedgerCheckpoint, checksum
from kedge.node.devices.ledger import DeviceAmounts, DeviceLedger, DeviceOwner, PluginDevice

R = "example.com/d"


def written(directory: Path) -> DeviceLedger:
    book = DeviceLedger()
    book.register(R, DevicePluginOptions(pre_start_required=True, release_required=True))
    book.set_devices(
        R, {"a": PluginDevice(True, (0, 1)), "b": PluginDevice(True), "c": PluginDevice(False)}
    )
    book.hold(DeviceOwner("u", "c", "pod", "default"), R, ["a", "b"], b"\x0a\x00")
    book.hold(DeviceOwner("gone", "c"), R, ["c"], b"")
    book.release("gone")
    LedgerCheckpoint(directory).write(book)
    return book


def test_everything_that_matters_comes_back(tmp_path: Path) -> None:
    before, after = written(tmp_path), LedgerCheckpoint(tmp_path).read()
    assert after.holdings == before.holdings
    assert after.releases == before.releases
    assert after.offers[R].options == before.offers[R].options


def test_devices_are_there_when_their_plugin_says_so_again(tmp_path: Path) -> None:
    written(tmp_path)
    after = LedgerCheckpoint(tmp_path).read()
    assert after.amounts() == {R: DeviceAmounts(0, 0)}
    assert not after.offers[R].seen


def test_the_file_has_the_fields_of_upstreams(tmp_path: Path) -> None:
    written(tmp_path)
    document = json.loads((tmp_path / NAME).read_text())
    entry = document["Data"]["PodDeviceEntries"][0]
    assert entry["PodUID"] == "u"
    assert entry["DeviceIDs"] == {"0": ["a"], "1": ["a"], "-1": ["b"]}
    assert entry["AllocResp"] == "CgA="
    assert document["Data"]["RegisteredDevices"] == {R: ["a", "b"]}
    assert document["Checksum"] == checksum(document["Data"])


@pytest.mark.parametrize("content", ["", "{}", '{"Data": {}, "Checksum": 1}', "[1]"])
def test_a_file_that_makes_no_sense_is_as_good_as_none(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_text(content)
    with caplog.at_level(logging.WARNING):
        assert LedgerCheckpoint(tmp_path).read().offers == {}
    assert "invalid device checkpoint" in caplog.text


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / NAME
    path.write_text(path.read_text().replace('"u"', '"x"'))
    assert LedgerCheckpoint(tmp_path).read().holdings == {}


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    book = written(tmp_path)
    checkpoint = LedgerCheckpoint(tmp_path)
    checkpoint.write(book)
    (tmp_path / NAME).unlink()
    checkpoint.write(book)
    assert not checkpoint.exists()
