"""How sockets are reached."""

import socket
from pathlib import Path

from kedge.deviceplugin.sockets import answers, reachable


def test_a_long_path_is_reached_all_the_same(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 20)
    directory.mkdir()
    where, held = reachable(directory / "x.sock")
    assert len(where) < 100
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(where)
    assert (directory / "x.sock").exists()
    held.close()


def test_a_socket_that_nobody_listens_at_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    assert not answers(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert not answers(path)
        listening.listen()
        assert answers(path)


def test_a_path_with_a_null_character_is_no_reason_to_fail() -> None:
    path = Path("/" + "x" * 100 + "\0") / "x.sock"
    assert reachable(path)[0] == str(path)
