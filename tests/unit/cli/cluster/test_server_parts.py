from pathlib import Path

import pytest

from kedge.cli.cluster import process, server_parts


@pytest.mark.parametrize(
    ("replica", "part"), [(0, "server"), (1, "server"), (2, "server-2"), (9, "server-9")]
)
def test_the_first_server_has_the_name_of_an_only_one(replica: int, part: str) -> None:
    assert server_parts.part_of(replica) == part
    assert server_parts.is_server(part)


@pytest.mark.parametrize("part", ["node-1", "server-", "server-x", "server-02", "restarter"])
def test_other_parts_are_no_servers(part: str) -> None:
    assert not server_parts.is_server(part)


def test_the_cluster_runs_while_one_of_its_servers_does(tmp_path: Path) -> None:
    assert server_parts.any_running(tmp_path) is None
    process.claim(tmp_path, "server-2")
    assert server_parts.parts(tmp_path) == ["server", "server-2"]
    assert list(server_parts.running(tmp_path)) == ["server-2"]
    assert server_parts.any_running(tmp_path) is not None
