from pathlib import Path
from typing import Any

from kedge.supervisor.records import Records


def record(identity: str, at: int) -> dict[str, Any]:
    return {"id": identity, "created_at": at, "state": "created", "about": {"name": "x"}}


def test_what_was_saved_is_loaded_the_eldest_first(tmp_path: Path) -> None:
    records = Records(str(tmp_path), "containers")
    for identity, at in (("a", 2), ("b", 1)):
        records.make(identity, "upper")
        records.save(record(identity, at))
    changed = {**record("a", 2), "state": "running"}
    records.save(changed)
    assert Records(str(tmp_path), "containers").load() == [record("b", 1), changed]


def test_what_is_large_is_said_once_unless_all_is_said_anew(tmp_path: Path) -> None:
    records = Records(str(tmp_path), "containers")
    directory = Path(records.make("a"))
    records.save(record("a", 1))
    changed = {**record("a", 1), "about": {"name": "y"}}
    records.save(changed)
    assert records.load() == [record("a", 1)]
    records.rewrite(changed)
    assert records.load() == [changed]
    assert (directory / "record.jsonl").read_text().count("\n") == 0


def test_what_was_never_finished_goes_to_the_trash(tmp_path: Path) -> None:
    records = Records(str(tmp_path), "containers")
    records.make("half")
    records.make("broken")
    Path(records.directory("broken"), "record.jsonl").write_text('{"id": "bro')
    assert records.load() == []
    assert sorted(path.name for path in Path(records.trash).iterdir()) == ["broken", "half"]


def test_a_state_that_was_not_written_whole_is_forgotten_and_the_next_is_not(
    tmp_path: Path,
) -> None:
    records = Records(str(tmp_path), "containers")
    records.make("a")
    records.save(record("a", 1))
    with Path(records.directory("a"), "record.jsonl").open("a") as file:
        file.write('\n{"state": "runn')
    assert records.load() == [record("a", 1)]
    changed = {**record("a", 1), "state": "exited"}
    records.save(changed)
    assert records.load() == [changed]


def test_a_record_stays_one_file(tmp_path: Path) -> None:
    records = Records(str(tmp_path), "containers")
    directory = Path(records.make("a"))
    records.save(record("a", 1))
    records.save({**record("a", 1), "state": "running"})
    assert [path.name for path in directory.iterdir()] == ["record.jsonl"]
