"""What containers say and hear."""

import os

from tests.contract.embedded.workbench import Bench, lines_of, needs_root, read, until_said

from kedge.node.runtime.runtime import (
    RunState,
)
from kedge.supervisor.container.logs import MOST_BYTES, MOST_FILES, older_parts

pytestmark = needs_root


async def test_the_log_tells_streams_apart_and_cuts_long_lines(bench: Bench) -> None:
    script = "echo out; echo err >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf unfinished"
    ended = await bench.ended(await bench.start(await bench.pod(), "sh", "-c", script))
    lines = lines_of(ended)
    assert ["stdout", "F", "out"] in lines
    assert ["stderr", "F", "err"] in lines
    long = [(tag, len(text)) for stream, tag, text in lines if text.startswith("x")]
    assert long == [("P", 16_384), ("P", 16_384), ("F", 7232)]
    assert lines[-1] == ["stdout", "P", "unfinished"]


async def test_a_log_is_cut_as_it_is_written_and_goes_with_its_container(bench: Bench) -> None:
    script = "head -c 60000000 /dev/zero | tr '\\0' x | fold -w 1000; echo end; sleep 1000"
    container = await bench.start(await bench.pod(), "sh", "-c", script)
    await until_said(bench, container, "end")
    known = await bench.runtime.container(container)
    parts = [*older_parts(known.log_path), known.log_path]
    assert len(parts) == MOST_FILES
    assert max(os.stat(part).st_size for part in parts) <= MOST_BYTES
    await bench.runtime.remove_container(container)
    assert not any(map(os.path.exists, parts))


async def test_who_attaches_sees_output_and_standard_input_outlives_them(bench: Bench) -> None:
    script = "while read line; do echo got $line; done; echo end"
    container = await bench.start(await bench.pod(), "sh", "-c", script, stdin=True)
    for word in (b"one", b"two"):
        stream = await bench.runtime.attach(container, stdin=True)
        os.write(stream.stdin, word + b"\n")
        got = await read(stream.stdout, lambda data: data.endswith(b"\n"))
        assert got == b"got " + word + b"\n"
        await stream.close()
    assert (await bench.runtime.container(container)).state is RunState.RUNNING


async def test_standard_input_that_is_open_once_ends_with_its_client(bench: Bench) -> None:
    container = await bench.start(
        await bench.pod(), "sh", "-c", "cat; exit 4", stdin=True, stdin_once=True
    )
    stream = await bench.runtime.attach(container, stdin=True)
    os.write(stream.stdin, b"only\n")
    os.close(stream.stdin)
    stream.stdin = -1
    assert await read(stream.stdout) == b"only\n"
    assert await stream.wait() == 4
    await stream.close()


async def test_a_terminal_is_the_container_s_own(bench: Bench) -> None:
    script = "tty; test -t 0 && test -t 1 && echo yes; read line; stty size; echo got $line"
    container = await bench.start(await bench.pod(), "sh", "-c", script, tty=True, stdin=True)
    stream = await bench.runtime.attach(container, stdin=True)
    assert stream.stdin == stream.stdout
    assert stream.stderr == -1
    await until_said(bench, container, "yes")
    await stream.resize(99, 33)
    os.write(stream.stdin, b"hello\n")
    code = await stream.wait()
    await stream.close()
    assert code == 0
    said = bench.said(await bench.runtime.container(container))
    assert said.splitlines() == ["/dev/pts/0", "yes", "hello", "33 99", "got hello"]
