import socket

import msgspec

from kedge.cluster.warm_parent.message import ClusterEnd, MessageSocket


def test_messages_arrive_one_by_one_and_end_with_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = MessageSocket(ours), MessageSocket(theirs)
        sender.send(ClusterEnd(problems="one"))
        sender.send(ClusterEnd(problems="two\nlines"))
        ours.shutdown(socket.SHUT_WR)
        found = [msgspec.json.decode(receiver.line(), type=ClusterEnd) for _ in range(2)]
        assert [each.problems for each in found] == ["one", "two\nlines"]
        assert receiver.line() == b""
