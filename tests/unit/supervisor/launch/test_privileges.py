import base64
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.launch import privileges

FILTER = b"\x06\0\0\0\0\0\xff\x7f"


class Calls(list[str]):
    """The system calls that give up privileges, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        names = {
            libc.PR_SET_DUMPABLE: "not dumpable",
            libc.PR_CAPBSET_DROP: "bounding set",
            libc.PR_SET_NO_NEW_PRIVS: "no_new_privs",
        }
        monkeypatch.setattr(libc, "prctl", lambda option, _=0: self.note(names[option]))
        monkeypatch.setattr(libc, "set_filter", lambda program: self.note("filter"))
        monkeypatch.setattr(libc, "capabilities", lambda: 0xFF)
        monkeypatch.setattr(libc, "set_capabilities", lambda kept: self.note(f"keep {kept:#x}"))
        monkeypatch.setattr(os, "setgroups", lambda groups: self.note("groups"))
        monkeypatch.setattr(os, "setresgid", lambda *ids: self.note("group"))
        monkeypatch.setattr(os, "setresuid", lambda *ids: self.note("user"))

    def note(self, what: str) -> int:
        if not self or self[-1] != what:
            self.append(what)
        return 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def spec(*, user: int = 0, no_new_privileges: bool = False, seccomp: bytes = FILTER) -> Any:
    return {
        "user": user,
        "group": user,
        "groups": [user],
        "capabilities": 0x3,
        "no_new_privileges": no_new_privileges,
        "seccomp": base64.b64encode(seccomp).decode(),
    }


def test_without_no_new_privs_the_filter_is_set_before_capabilities_are_dropped(
    calls: Calls,
) -> None:
    privileges.drop(spec(), has_ids=False)
    privileges.set_late_filter(spec())
    assert calls == [
        *("not dumpable", "bounding set", "filter"),
        *("groups", "group", "user", "keep 0x3"),
    ]


def test_with_no_new_privs_the_filter_is_set_last(calls: Calls) -> None:
    privileges.drop(spec(no_new_privileges=True), has_ids=False)
    privileges.set_late_filter(spec(no_new_privileges=True))
    assert calls == [
        *("not dumpable", "bounding set", "no_new_privs"),
        *("groups", "group", "user", "keep 0x3", "filter"),
    ]


def test_a_user_other_than_root_has_no_capabilities(calls: Calls) -> None:
    privileges.drop(spec(user=1000, seccomp=b""), has_ids=False)
    assert calls[-1] == "keep 0x0"


def test_a_rootless_container_has_its_user_already(calls: Calls) -> None:
    privileges.drop(spec(user=1000, seccomp=b""), has_ids=True)
    assert calls == ["not dumpable", "bounding set", "keep 0x0"]


def test_the_bounding_set_ends_at_the_last_capability_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[int] = []

    def drop(option: int, number: int = 0) -> int:
        if number > 40:
            raise OSError(22, "Invalid argument")
        dropped.append(number)
        return 0

    monkeypatch.setattr(libc, "prctl", drop)
    privileges._limit_bounding_set(0b101)
    assert dropped == [1, *range(3, 41)]


def test_a_score_that_cannot_be_set_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, text: str, directory: int | None = None) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(privileges, "_write", refused)
    with open("/proc/self/oom_score_adj") as file:
        current = int(file.read())
    notes: list[str] = []
    privileges.set_oom_score(current - 1, notes.append)
    privileges.set_oom_score(current + 1, notes.append)
    assert notes == [
        f"oom_score_adj stays {current}: this machine does not let it be {current - 1}"
    ]


def test_the_limit_of_open_files_is_that_of_other_runtimes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: found.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    privileges.raise_file_limit()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    privileges.raise_file_limit()
    assert found == [(1_048_576, 1_048_576), (4096, 4096)]


def test_a_process_without_a_supervisor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(libc, "prctl", lambda *_: 0)
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        privileges.die_with(theirs.fileno())
        assert ended == []
        ours.close()
        privileges.die_with(theirs.fileno())
    assert ended == [1]


ONE, MANY = "0 1000 1\n", "0 1000 1\n1 100000 65536\n"


class OwnProcess:
    """The directory of this process in /proc, with the maps of a user namespace."""

    def __init__(self, directory: Path, users: str, groups: str) -> None:
        self.directory = directory
        (directory / "uid_map").write_text(users)
        (directory / "gid_map").write_text(groups)
        (directory / "setgroups").write_text("allow")

    def map_user(self, user: int, group: int) -> bool:
        opened = os.open(self.directory, os.O_PATH)
        try:
            return privileges.map_user(user, group, opened)
        finally:
            os.close(opened)


@pytest.mark.parametrize(
    ("maps", "user", "group", "expected"),
    [
        ((ONE, ONE), 0, 0, (True, ONE)),
        ((ONE, ONE), 1000, 0, (True, "1000 0 1")),
        ((MANY, MANY), 0, 0, (False, MANY)),
        ((MANY, MANY), 1000, 65_536, (False, MANY)),
        ((MANY, MANY), 1_000_000, 0, (True, "1000000 0 1")),
        ((MANY, MANY), 5, 1_000_000, (True, "5 0 1")),
        ((MANY, ONE), 5, 0, (True, "5 0 1")),
        ((ONE, MANY), 0, 5, (False, ONE)),
    ],
)
def test_a_user_that_the_namespace_lacks_is_the_only_one_of_another(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    maps: tuple[str, str],
    user: int,
    group: int,
    expected: tuple[bool, str],
) -> None:
    monkeypatch.setattr(libc, "unshare", lambda _: (tmp_path / "uid_map").write_text(""))
    assert OwnProcess(tmp_path, *maps).map_user(user, group) is expected[0]
    assert (tmp_path / "uid_map").read_text() == expected[1]


def test_groups_that_the_namespace_lacks_are_told(tmp_path: Path) -> None:
    OwnProcess(tmp_path, MANY, MANY)
    notes: list[str] = []
    opened = os.open(tmp_path, os.O_PATH)
    found = privileges.mapped_groups([5, 99_999], opened, notes.append)
    os.close(opened)
    assert (found, len(notes)) == ([5], 1)
    assert "group 99999" in notes[0]
