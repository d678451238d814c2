"""Logs of programs that run for long."""

import subprocess
import sys
from pathlib import Path

WRITER = """
import logging, os, sys
from kedge.restarter.bounded_log import BoundedLogHandler
os.chdir(sys.argv[1])
handler = BoundedLogHandler("server.log", limit=1000)
logging.basicConfig(handlers=[handler], format="%(message)s", level=logging.INFO)
for number in range(200):
    logging.info("line %03d", number)
print("end")
"""


def write(directory: Path, log: str) -> None:
    with (directory / log).open("ab") as file:
        command = [sys.executable, "-c", WRITER, str(directory)]
        subprocess.run(command, stdout=file, stderr=file, check=True)


def test_a_log_is_set_aside_while_the_program_runs(tmp_path: Path) -> None:
    write(tmp_path, "server.log")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"server.log", "server.log.1"}
    assert max(sizes.values()) <= 1010
    assert (tmp_path / "server.log").read_text().endswith("line 199\nend\n")
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_a_file_that_somebody_chose_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("older\n")
    write(tmp_path, "mine.txt")
    assert (tmp_path / "server.log").read_text() == "older\n"
    assert len((tmp_path / "mine.txt").read_text().splitlines()) == 201
