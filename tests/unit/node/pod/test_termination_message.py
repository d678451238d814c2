import os
from pathlib import Path

from kedge.node.pod import labels
from kedge.node.pod.termination_message import log_end, termination_message
from kedge.node.runtime.runtime import RunState, RuntimeContainer


def ended(tmp_path: Path, *, policy: str = "File", exit_code: int = 1) -> RuntimeContainer:
    return RuntimeContainer(
        id="c",
        sandbox="s",
        name="c",
        state=RunState.EXITED,
        exit_code=exit_code,
        log_path=str(tmp_path / "log"),
        annotations={
            labels.MESSAGE_PATH: "/dev/termination-log",
            labels.MESSAGE_POLICY: policy,
        },
    )


def test_the_end_of_the_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("x" * 5000 + "end")
    said = termination_message(ended(tmp_path), file)
    assert len(said) == 4096
    assert said.endswith("xend")


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert termination_message(ended(tmp_path), tmp_path / "none") == ""


def test_the_log_speaks_for_a_container_that_failed_silently(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("2030-01-01T00:00:00Z stdout F hello\n2030-01-01T00:00:00Z stderr F bye\n")
    silent = tmp_path / "none"
    falls_back = "FallbackToLogsOnError"
    assert termination_message(ended(tmp_path, policy=falls_back), silent) == "hello\nbye\n"
    assert termination_message(ended(tmp_path, policy=falls_back, exit_code=0), silent) == ""
    assert termination_message(ended(tmp_path), silent) == ""
    silent.write_text("mine")
    assert termination_message(ended(tmp_path, policy=falls_back), silent) == "mine"


def test_only_the_last_lines_of_a_log_count() -> None:
    lines = b"".join(b"t stdout F %d\n" % i for i in range(100))
    assert log_end(lines).splitlines() == [str(i) for i in range(20, 100)]
    long = b"t stdout F " + b"x" * 3000 + b"\n"
    assert len(log_end(long)) == 2048


def test_parts_of_a_line_are_put_together() -> None:
    assert log_end(b"t stdout P one \nt stdout F two\n") == "one two\n"


def test_a_fifo_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "words"
    os.mkfifo(file)
    assert "not a regular file" in termination_message(ended(tmp_path), file)
