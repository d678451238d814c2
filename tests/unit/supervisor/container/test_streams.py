import os
from pathlib import Path

from kedge.supervisor.container import streams
from kedge.supervisor.container.streams import OutputSink, Streams
from kedge.supervisor.loop import EventLoop


def test_output_goes_to_the_log_and_to_those_who_are_attached(
    event_loop: EventLoop, tmp_path: Path
) -> None:
    whole = Streams(event_loop, str(tmp_path / "log"))
    stdin, stdout, stderr = whole.pipes(stdin=False)
    attached = whole.attach(stdin=False, once=False)
    os.write(stdout, b"hello\n")
    os.write(stderr, b"oops\n")
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    whole.finish()
    assert [os.read(each, 100) for each in attached] == [b"hello\n", b"oops\n"]
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["stdout F hello", "stderr F oops"]
    for each in attached:
        os.close(each)


def test_the_input_of_one_attachment_ends_with_it(event_loop: EventLoop, tmp_path: Path) -> None:
    whole = Streams(event_loop, str(tmp_path / "log"))
    stdin, stdout, stderr = whole.pipes(stdin=True)
    first, *rest = whole.attach(stdin=True, once=True)
    os.write(first, b"typed")
    os.close(first)
    assert (os.read(stdin, 100), os.read(stdin, 100)) == (b"typed", b"")
    for descriptor in (stdin, stdout, stderr, *rest):
        os.close(descriptor)
    whole.finish()


def test_a_sink_keeps_what_its_reader_does_not_take(event_loop: EventLoop) -> None:
    read, write = os.pipe()
    changes: list[OutputSink] = []
    sink = OutputSink(event_loop, write, changes.append)
    data = b"x" * (streams._AHEAD + 200_000)
    sink.write(data)
    assert sink.full
    taken = b""
    while sink.full:
        taken += os.read(read, 65_536)
        sink._go_on()
    assert changes == [sink]
    sink.finish()
    while sink.descriptor >= 0:
        taken += os.read(read, 65_536)
        sink._go_on()
    while piece := os.read(read, 65_536):
        taken += piece
    os.close(read)
    assert taken == data


def test_a_reader_that_takes_nothing_is_disconnected(event_loop: EventLoop) -> None:
    read, write = os.pipe()
    sink = OutputSink(event_loop, write, lambda _: None)
    sink.write(b"x" * 200_000)
    sink._look()
    assert sink.descriptor == -1
    os.close(read)
