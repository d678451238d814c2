"""The trial of an uplink, here without any border to cross."""

import socket

from kedge.node.network import uplink_trial

HERE = "127.0.0.1"


def test_a_word_passes_and_comes_back() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inner:
        assert uplink_trial.datagram_problem(inner, HERE) == ""
    with socket.socket() as stream:
        assert uplink_trial.connection_problem(stream, HERE) == ""
    with socket.socket() as refused:
        assert uplink_trial.refusal_problem(refused, HERE) == ""


def test_an_address_that_the_machine_does_not_have_is_a_problem() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inner:
        problem = uplink_trial.datagram_problem(inner, "203.0.113.9")
    assert problem.startswith("no datagram passes: ")
    with socket.socket() as stream:
        problem = uplink_trial.connection_problem(stream, "203.0.113.9")
    assert problem.startswith("no connection passes: ")
