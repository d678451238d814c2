import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.supervisor import interpreter


def test_the_copy_is_the_interpreter_and_cannot_be_written_to() -> None:
    copy = interpreter.sealed()
    try:
        assert Path(f"/proc/self/fd/{copy}").read_bytes() == Path(sys.executable).read_bytes()
        assert fcntl.fcntl(copy, fcntl.F_GET_SEALS) == 0xF
        with pytest.raises(PermissionError):
            os.pwrite(copy, b"\x7fELF", 0)
    finally:
        os.close(copy)


def test_the_copy_runs_with_nothing_but_its_own_variables() -> None:
    copy = interpreter.sealed()
    question = "import os, sys; print(sys.executable, os.readlink('/proc/self/exe'))"
    try:
        said = subprocess.check_output(
            [sys.executable, "-I", "-S", "-c", question],
            executable=f"/proc/self/fd/{copy}",
            pass_fds=[copy],
            env=interpreter.environment(),
            text=True,
        )
    finally:
        os.close(copy)
    assert said.startswith(f"{sys.executable} /memfd:python")
