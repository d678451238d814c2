"""Programs that a command starts, and the line by which they say that they are ready."""

import os
import resource
from collections.abc import Iterator

import pytest

from kedge.cli.cluster.children import _read_line

NUMBER = 1500
"""Above 1023, the last descriptor that select(2) takes."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose reading end has a high number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= NUMBER:
        pytest.skip(f"the limit of open files is {hard}")
    if soft <= NUMBER:
        resource.setrlimit(resource.RLIMIT_NOFILE, (NUMBER + 1, hard))
    reader, writer = os.pipe()
    os.dup2(reader, NUMBER, inheritable=False)
    os.close(reader)
    try:
        yield NUMBER, writer
    finally:
        os.close(NUMBER)
        os.close(writer)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_line_is_read_from_a_descriptor_with_a_high_number(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.write(writer, b"ready\n")
    assert _read_line(reader, 5) == b"ready\n"


def test_a_program_that_says_nothing_in_time_is_a_timeout(pipe: tuple[int, int]) -> None:
    with pytest.raises(TimeoutError):
        _read_line(pipe[0], 0)


def test_a_program_that_hangs_up_says_nothing() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    assert _read_line(reader, 5) == b""
    os.close(reader)
