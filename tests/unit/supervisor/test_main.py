import fcntl
import subprocess
import sys
from pathlib import Path


def test_there_is_one_supervisor_per_directory(tmp_path: Path) -> None:
    with open(tmp_path / "supervisor.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "-m", "kedge.supervisor", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, f"another supervisor has {tmp_path}\n")
