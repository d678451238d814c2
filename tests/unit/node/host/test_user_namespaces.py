import asyncio
import json
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import SystemClock
from kedge.node.host.user_namespaces import InvalidIdRange, UserNamespaces, slots, void_claims
from kedge.node.pod.files import PodFiles
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.testing.pods import new_pod
from kedge.testing.runtime import FakeRuntime

FIRST = 0x7000_0000
LENGTH = 65_536


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    path = tmp_path / "etc"
    path.mkdir()
    (path / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    return path


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """A process outside of any user namespace."""
    path = tmp_path / "process"
    path.mkdir()
    for name in ("uid_map", "gid_map"):
        (path / name).write_text("         0          0 4294967295\n")
    return path


def give(etc: Path, uids: str, gids: str | None = None) -> None:
    (etc / "subuid").write_text(uids)
    (etc / "subgid").write_text(uids if gids is None else gids)


# Which ranges there are.


def test_ranges_are_where_no_convention_gives_ids_to_anybody(etc: Path, process: Path) -> None:
    found = slots(etc, process)
    assert (found[0], found[-1], len(found)) == (FIRST, FIRST + 4095 * LENGTH, 4096)


def test_ids_that_the_machine_knows_are_left_out(etc: Path, process: Path) -> None:
    (etc / "passwd").write_text(f"odd:x:{FIRST + 1}:0::/:\nbroken\n")
    (etc / "group").write_text(f"odd:x:{FIRST + LENGTH}:\n")
    give(etc, f"user:{FIRST + 2 * LENGTH + 5}:{LENGTH}\nsmall:100000:65536\n", "")
    assert slots(etc, process)[0] == FIRST + 4 * LENGTH


def test_the_machine_may_give_ids_to_the_kubelet(etc: Path, process: Path) -> None:
    give(etc, f"user:100000:65536\nkubelet:{5 * LENGTH}:{3 * LENGTH}\n")
    assert slots(etc, process) == [5 * LENGTH, 6 * LENGTH, 7 * LENGTH]


@pytest.mark.parametrize(
    ("uids", "gids", "why"),
    [
        ("kubelet:65536:65536", "", "differ"),
        ("kubelet:65536:65536", "kubelet:131072:65536", "differ"),
        ("kubelet:65537:65536", None, "multiple"),
        ("kubelet:65536:65535", None, "multiple"),
        ("kubelet:65536:0", None, "multiple"),
        ("kubelet:0:131072", None, "must not begin below"),
        ("kubelet:65536:65536\nkubelet:131072:65536", None, "one range"),
    ],
)
def test_entries_that_upstream_refuses_give_nothing(
    etc: Path, process: Path, uids: str, gids: str | None, why: str
) -> None:
    give(etc, uids, gids)
    with pytest.raises(InvalidIdRange, match=why):
        slots(etc, process)


def test_a_machine_in_a_user_namespace_gives_only_ids_that_it_has(etc: Path, process: Path) -> None:
    (process / "gid_map").write_text(f"0 1000 {FIRST + LENGTH}\n")
    assert slots(etc, process) == [FIRST]
    (process / "uid_map").write_text("0 1000 65536\n")
    with pytest.raises(InvalidIdRange, match="are free on this machine"):
        slots(etc, process)


# Which pod has which.


class Node:
    """The ranges of one node of a machine."""

    def __init__(self, machine: Path, name: str = "node") -> None:
        self.runtime = FakeRuntime(SystemClock())
        self.files = PodFiles(machine / name / "pods", machine / name / "logs")
        self.ids = UserNamespaces(
            self.runtime,
            self.files,
            claims=machine / "claims",
            available=lambda: (65536, 131072, 196608),
        )

    def ensure(self, uid: str) -> int:
        pod = own_users(uid)
        self.files.make(pod)
        return asyncio.run(self.ids.ensure(pod))

    def release(self, uid: str) -> None:
        asyncio.run(self.ids.release(uid))


def own_users(uid: str) -> Pod:
    return new_pod(metadata={"uid": uid, "name": uid}, spec={"hostUsers": False})


def test_a_pod_with_the_machines_users_gets_nothing(tmp_path: Path) -> None:
    pod = new_pod(metadata={"uid": "a"})
    assert asyncio.run(Node(tmp_path).ids.ensure(pod)) == 0
    assert not (tmp_path / "claims").exists()


def test_a_range_is_kept_over_restarts_in_the_kubelets_own_format(tmp_path: Path) -> None:
    assert Node(tmp_path).ensure("a") == 65536
    again = Node(tmp_path)
    assert again.ensure("b") == 131072
    assert again.ensure("a") == 65536
    mapping = {"hostId": 65536, "containerId": 0, "length": 65536}
    written = json.loads((again.files.directory("a") / "userns").read_bytes())
    assert written == {"uidMappings": [mapping], "gidMappings": [mapping]}


def test_two_nodes_of_a_machine_never_give_the_same_range(tmp_path: Path) -> None:
    one, two = Node(tmp_path, "one"), Node(tmp_path, "two")
    assert [one.ensure("a"), two.ensure("b"), one.ensure("c")] == [65536, 131072, 196608]
    with pytest.raises(RuntimeFailure, match="could not find an empty slot"):
        two.ensure("d")


def test_a_range_is_free_when_its_pod_is_gone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ensure("a")
    node.release("a")
    node.release("a")
    node.release("never")
    assert [node.ensure(uid) for uid in ("b", "c", "d")] == [131072, 196608, 65536]
    assert node.ensure("b") == 131072


def test_a_range_that_was_just_left_comes_last(tmp_path: Path) -> None:
    given = []
    for uid in "abcd":
        node = Node(tmp_path)
        given.append(node.ensure(uid))
        node.release(uid)
    assert given == [65536, 131072, 196608, 65536]


def test_a_claim_of_a_pod_that_vanished_is_void(tmp_path: Path) -> None:
    one, two = Node(tmp_path, "one"), Node(tmp_path, "two")
    one.ensure("a")
    one.files.remove("a")
    assert [two.ensure(uid) for uid in ("b", "c", "d")] == [131072, 196608, 65536]
    with pytest.raises(RuntimeFailure, match="could not find an empty slot"):
        one.ensure("a")


def test_a_node_that_goes_withdraws_its_claims_and_no_others(tmp_path: Path) -> None:
    Node(tmp_path, "one").ensure("a")
    Node(tmp_path, "two").ensure("b")
    void_claims(tmp_path / "one" / "pods", tmp_path / "claims")
    assert sorted(each.name for each in (tmp_path / "claims").iterdir()) == ["131072", "lock"]


def test_a_user_who_may_not_read_the_claims_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's nodes make the directory, and only root may read it."""

    def refused(path: Path, pattern: str) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "glob", refused)
    void_claims(tmp_path / "one" / "pods", tmp_path / "claims")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"uidMappings": [], "gidMappings": []}', b"\xff"]
)
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    node = Node(tmp_path)
    node.ensure("a")
    (node.files.directory("a") / "userns").write_bytes(content)
    assert node.ensure("a") == 131072
    assert [node.ensure(uid) for uid in ("a", "b", "c")] == [131072, 196608, 65536]


def test_a_runtime_that_cannot_refuses_with_the_kubelets_words(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runtime.no_user_namespaces = "old kernel"
    with pytest.raises(RuntimeFailure) as error:
        node.ensure("a")
    assert str(error.value) == (
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces: old kernel"
    )
