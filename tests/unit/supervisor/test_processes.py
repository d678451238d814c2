import os
import subprocess

from kedge.supervisor import processes


def test_a_process_is_known_by_its_number_and_its_beginning() -> None:
    assert processes.began(os.getpid()) > 0
    assert processes.began(1 << 30) == 0


def test_a_tree_ends_as_a_whole() -> None:
    script = "sleep 1000 & setsid sleep 1001 & echo ready; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        everyone = processes.tree(shell.pid)
        assert len(everyone) == 3
        processes.kill_tree(shell.pid)
        assert shell.wait() == -9
        # The pipe ends only when the last of those who have it does.
        assert shell.stdout.read() == b""
