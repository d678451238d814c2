"""How many sessions there may be."""

import contextlib

import pytest

from kedge.machinery.errors import StatusError
from kedge.node.server.sessions import SessionCounter


def refusal(sessions: SessionCounter, uid: str) -> str:
    with pytest.raises(StatusError) as caught:
        sessions.check(uid)
    assert (caught.value.code, caught.value.retry_after) == (429, 1)
    return caught.value.message


def test_a_pod_and_a_node_have_so_many_and_no_more() -> None:
    sessions = SessionCounter(per_pod=2, per_node=3)
    with contextlib.ExitStack() as stack:
        for uid in ("a", "a", "b"):
            sessions.check(uid)
            stack.enter_context(sessions.open(uid))
        assert refusal(sessions, "a").endswith("the pod already has 2")
        assert refusal(sessions, "b").endswith("the node already has 3")
    sessions.check("a")
