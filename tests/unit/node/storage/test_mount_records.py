"""Records of mounts outlive the agent that wrote them."""

from pathlib import Path

from msgspec.structs import replace

from kedge.node.storage.mount_records import MountRecord, MountRecords

RECORD = MountRecord(uid="u", volume="v", name="pv", driver="d", handle="h")


def test_the_next_agent_reads_what_was_written(tmp_path: Path) -> None:
    records = MountRecords(tmp_path)
    records.write(RECORD)
    records.write(replace(RECORD, path="/x"))
    assert list(MountRecords(tmp_path)) == [replace(RECORD, path="/x")]
    records.remove(RECORD)
    records.remove(RECORD)
    assert list(MountRecords(tmp_path)) == []


def test_other_pods_of_the_same_volume_are_found(tmp_path: Path) -> None:
    records = MountRecords(tmp_path)
    second = replace(RECORD, uid="u2")
    for each in (RECORD, second, replace(RECORD, uid="u3", handle="other")):
        records.write(each)
    assert records.others(RECORD) == [second]
    assert records.users("d", "h") == [RECORD, second]
    assert records.of_pod("u2") == [second]


def test_a_damaged_record_does_not_stop_the_agent(tmp_path: Path) -> None:
    MountRecords(tmp_path).write(RECORD)
    (tmp_path / "u" / "claims" / "bad.json").write_text("{")
    assert list(MountRecords(tmp_path)) == [RECORD]
