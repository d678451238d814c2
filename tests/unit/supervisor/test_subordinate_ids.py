"""Subordinate ids: grants of root, and the programs that map them."""

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.supervisor import subordinate_ids
from kedge.supervisor.subordinate_ids import IdGrant, SubordinateRange

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root owns programs of root")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("ann:100000:65536\n", [(100_000, 65_536)]),
        ("1000:5:1\nbob:1:1\nann:7:2", [(5, 1), (7, 2)]),
        ("# ann:1:1\nann:x:1\nann:1\nann:1:1:1\nann:-1:5\n:1:1", []),
        ("ann:0:10\nann:10:0", []),
        ("ann:4294967294:1", [(4_294_967_294, 1)]),
        ("ann:4294967294:2\nann:99999999999:1", []),
        ("anna:1:1\nan:1:1", []),
    ],
)
def test_a_file_grants_ranges_to_a_name_or_a_number(
    text: str, expected: list[tuple[int, int]]
) -> None:
    assert subordinate_ids.ranges(text, {"ann", "1000"}) == expected


def test_a_user_has_a_limited_number_of_ranges() -> None:
    assert len(subordinate_ids.ranges("ann:7:1\n" * 100_000, {"ann"})) == 16


def test_the_user_becomes_root_and_the_ranges_follow_one_another() -> None:
    grant = IdGrant(
        "/usr/bin/newuidmap", 1000, [SubordinateRange(100_000, 10), SubordinateRange(500_000, 5)]
    )
    assert grant.arguments(42) == [
        *("/usr/bin/newuidmap", "42"),
        *("0", "1000", "1", "1", "100000", "10", "11", "500000", "5"),
    ]


def test_a_map_tells_which_ids_a_namespace_has() -> None:
    text = "         0       1000          1\n         1     100000      65536\n"
    assert subordinate_ids.count(text) == 65_537
    assert [each for each in (0, 1, 65_536, 65_537) if subordinate_ids.has(text, each)] == [
        *(0, 1, 65_536),
    ]
    assert subordinate_ids.count("") == 0


class Machine:
    """The files of a machine, and its user."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.files = {kind: place / f"sub{kind}" for kind in ("gid", "uid")}
        paths = {kind: str(path) for kind, path in self.files.items()}
        monkeypatch.setattr(subordinate_ids, "_FILES", paths)
        monkeypatch.setattr(subordinate_ids, "_DIRECTORIES", (str(place / "none"), str(place)))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(os, "getegid", lambda: 100)
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
        for kind, path in self.files.items():
            path.write_text("ann:100000:65536\n")
            self.program(kind).write_text("")

    def program(self, kind: str) -> Path:
        return self.place / f"new{kind}map"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@needs_root
def test_users_and_groups_are_granted_together(machine: Machine) -> None:
    ranges = [SubordinateRange(100_000, 65_536)]
    assert subordinate_ids.granted() == [
        IdGrant(str(machine.program("gid")), 100, ranges),
        IdGrant(str(machine.program("uid")), 1000, ranges),
    ]
    machine.files["gid"].write_text("bob:1:1\n")
    assert subordinate_ids.granted() == []


@needs_root
def test_root_needs_no_grant(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert subordinate_ids.granted() == []


@needs_root
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_program_that_others_can_change_is_not_run(machine: Machine, mode: int) -> None:
    machine.program("uid").chmod(mode)
    assert subordinate_ids.granted() == []


@needs_root
def test_a_program_of_another_user_is_not_run(machine: Machine) -> None:
    os.chown(machine.program("uid"), 1000, -1)
    assert subordinate_ids.granted() == []
    machine.program("uid").unlink()
    assert subordinate_ids.granted() == []


def test_a_program_runs_without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    said = subordinate_ids._run(["/bin/sh", "-c", 'echo "<$LD_PRELOAD>" "$HOME" >&2; exit 3'])
    assert said == "<>"


def test_the_end_of_a_program_is_told() -> None:
    assert subordinate_ids._run(["/bin/sh", "-c", "echo noise; exit 0"]) == ""
    assert subordinate_ids._run(["/bin/sh", "-c", "exit 7"]) == "it ended with 7"
    assert subordinate_ids._run(["/missing"]) == "it ended with 127"


def test_the_words_of_a_program_are_limited() -> None:
    script = "head -c 20000 /dev/zero | tr '\\0' x >&2; exit 1"
    assert subordinate_ids._run(["/bin/sh", "-c", f"PATH=/bin:/usr/bin; {script}"]) == "x" * 1024


def test_a_program_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subordinate_ids, "_SECONDS", 0.05)
    assert subordinate_ids._run(["/bin/sh", "-c", "while :; do :; done"]) == "it ended with -9"


def test_the_first_problem_ends_the_mapping() -> None:
    grants = [IdGrant("/bin/false", 0, []), IdGrant("/missing", 0, [])]
    assert subordinate_ids.map_process(1, grants) == "/bin/false: it ended with 1"
    assert subordinate_ids.map_process(1, [IdGrant("/bin/true", 0, [])]) == ""
