"""The files of a support bundle."""

import tarfile
from pathlib import Path

import pytest

from kedge.cli.cluster import state
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure
from kedge.cli.support import bundle


def fails() -> object:
    raise Failure("no route to token-12345678")


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as packed:
        found = {}
        for each in packed:
            content = packed.extractfile(each)
            assert content is not None
            found[each.name] = content.read().decode()
        return found


def test_a_part_that_fails_is_told_in_the_bundle(tmp_path: Path) -> None:
    parts = iter([("a.txt", lambda: "has token-12345678"), ("b.json", fails)])
    path = tmp_path / "x.tar.gz"
    assert bundle.write(path, parts, ["token-12345678"]) == ["a.txt", "b.json.failed"]
    assert read(path) == {"x/a.txt": "has <removed>", "x/b.json.failed": "no route to <removed>"}
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        bundle.write(path, iter(()), [])


def test_a_cluster_that_does_not_run_is_described_without_its_secrets(tmp_path: Path) -> None:
    directory = tmp_path / "blue"
    state.prepare(directory, "blue")
    (directory / "token").write_text("the-admins-token\n")
    (directory / "pki").mkdir()
    (directory / "pki" / "ca.key").write_text("the key")
    (directory / "server.log").write_text("line\nread the-admins-token\n")
    (directory / "nodes" / "node-1").mkdir(parents=True)
    (directory / "nodes" / "node-1" / "node.json").write_text('{"level": "full"}')
    where = ClusterLocation(tmp_path, "blue", None)
    path = tmp_path / "x.tar.gz"
    assert bundle.secrets(directory) == ["the-admins-token"]
    bundle.write(path, bundle.cluster_parts(where, directory), bundle.secrets(directory))
    found = read(path)
    assert found["x/logs/server.log"] == "line\nread <removed>\n"
    assert '"full"' in found["x/nodes/node-1.json"]
    assert '"Stopped"' in found["x/status.json"]
    assert set(found) == {
        "x/status.json",
        "x/cluster.json",
        "x/nodes/node-1.json",
        "x/logs/server.log",
    }
    assert list(bundle.object_parts(directory)) == []
