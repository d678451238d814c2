"""The record of nodes that may be added, and the pool that starts them."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from kedge.cli.cluster import node_pool
from kedge.cli.cluster.node_pool import LocalNodePool, PoolNode, PoolRecord

AGENT = """
import sys
words = dict(each.split("=") for each in sys.argv[1:])
url = open(int(words["--join-fd"])).readline().strip()
with open(words["--told"], "w") as file:
    file.write(url)
"""


def record(tmp_path: Path) -> PoolRecord:
    (tmp_path / "agent.py").write_text(AGENT)
    words = (sys.executable, str(tmp_path / "agent.py"), f"--told={tmp_path}/told")
    node = PoolNode(name="node-2", arguments=words, log=str(tmp_path / "node.log"))
    return PoolRecord(least=1, calm_seconds=60.0, nodes=(node,))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    node_pool.write(tmp_path, record(tmp_path))
    assert node_pool.read(tmp_path) == record(tmp_path)
    node_pool.forget(tmp_path)
    assert node_pool.read(tmp_path) is None


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "node-pool.json").write_text("{")
    assert node_pool.read(tmp_path) is None


def test_an_agent_gets_the_address_of_the_server(tmp_path: Path) -> None:
    pool = LocalNodePool(tmp_path, record(tmp_path), "https://here")
    assert pool.names == ("node-2",)
    assert pool.running() == set()
    asyncio.run(pool.start("node-2"))
    (pid,) = (pid for pid, _ in pool._children.values())
    assert pool.running() <= {"node-2"}
    with contextlib.suppress(ChildProcessError):  # `running` may have seen its end already
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert (tmp_path / "told").read_text() == "https://here"
    assert pool.running() == set()
