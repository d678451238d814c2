"""Namespaces take turns."""

from kedge.client.informer import Key
from kedge.node.policies.fair_queue import FairQueue


def test_a_namespace_with_much_to_do_waits_for_its_turn() -> None:
    queue = FairQueue()
    for name in ("1", "2", "3"):
        queue.add(Key("busy", name))
    queue.add(Key("quiet", "1"))
    order = []
    while queue:
        order.append(queue.pop())
    assert order == [Key("busy", "1"), Key("quiet", "1"), Key("busy", "2"), Key("busy", "3")]


def test_a_key_is_in_the_queue_once() -> None:
    queue = FairQueue()
    queue.add(Key("a", "1"))
    queue.add(Key("a", "1"))
    assert list(queue) == [Key("a", "1")]
    assert Key("a", "1") in queue
    assert queue.has_any_of("a")
    queue.discard(Key("a", "1"))
    queue.discard(Key("a", "1"))
    assert not queue
    assert not queue.has_any_of("a")
