"""Limits on connections, and which one is evicted."""

from typing import NamedTuple

import pytest

from kedge.machinery.errors import StatusError
from kedge.web.connection_limits import ConnectionLimits, ConnectionSlots

LIMITS = ConnectionLimits(total=10, strangers=3, per_tenant=2, reserve=1)


class FakeCaller(NamedTuple):
    tenant: str
    is_privileged: bool = False


class Peer:
    """A connection."""

    evicted = False

    def evict(self) -> None:
        self.evicted = True


def arrived(slots: ConnectionSlots, now: float = 0.0) -> Peer:
    peer = Peer()
    slots.arrive(peer, now)
    return peer


def known(slots: ConnectionSlots, caller: FakeCaller) -> Peer:
    peer = arrived(slots)
    assert slots.settle(peer, caller)
    return peer


def refusal(slots: ConnectionSlots, caller: FakeCaller) -> str:
    peer = arrived(slots)
    with pytest.raises(StatusError) as caught:
        slots.settle(peer, caller)
    slots.leave(peer)
    assert (caught.value.code, caught.value.retry_after) == (429, 1)
    return caught.value.message.rpartition(": ")[2]


def test_the_oldest_stranger_goes_first_but_not_before_its_time() -> None:
    slots = ConnectionSlots(LIMITS)
    peers = [arrived(slots, now) for now in (1.0, 1.1, 1.2)]
    assert slots.make_room(1.3) == pytest.approx(0.2)
    assert slots.make_room(1.5) == 0.0
    assert [peer.evicted for peer in peers] == [True, False, False]
    assert slots.make_room(1.5) == 0.0  # there is room now, so no other connection is closed
    assert slots.evicted == 1


def test_who_is_known_is_no_stranger_and_stays() -> None:
    slots = ConnectionSlots(LIMITS)
    peers = [known(slots, FakeCaller(f"t{number}")) for number in range(3)]
    assert slots.make_room(100.0) == 0.0
    assert not any(peer.evicted for peer in peers)


def test_who_is_nobody_in_particular_stays_a_stranger() -> None:
    slots = ConnectionSlots(LIMITS)
    for _ in range(3):
        assert not slots.settle(arrived(slots), FakeCaller(""))
    assert slots.make_room(0.0) > 0


def test_a_tenant_has_a_share_and_the_privileged_have_none() -> None:
    slots = ConnectionSlots(LIMITS)
    first, _ = known(slots, FakeCaller("t")), known(slots, FakeCaller("t"))
    assert refusal(slots, FakeCaller("t")) == "t has 2 connections already"
    slots.leave(first)
    known(slots, FakeCaller("t"))
    for _ in range(4):
        known(slots, FakeCaller("admin", is_privileged=True))
    # Six of the seven that are not for strangers are taken, and the last is reserved.
    assert refusal(slots, FakeCaller("u")).endswith("as many connections as it can serve")
    known(slots, FakeCaller("admin", is_privileged=True))
    assert refusal(slots, FakeCaller("admin", is_privileged=True)).endswith("it can serve")


def test_a_process_without_descriptors_gets_one_back() -> None:
    slots = ConnectionSlots(LIMITS)
    slots.evict_stranger()
    peer = arrived(slots, 1.0)
    slots.evict_stranger()
    assert peer.evicted


def test_shares_fit_in_the_open_files_that_there_may_be() -> None:
    small, large = ConnectionLimits.within(1024), ConnectionLimits.within(1 << 20)
    assert (small.total, small.strangers, small.per_tenant) == (768, 96, 192)
    assert (large.total, large.strangers, large.per_tenant, large.reserve) == (4096, 512, 1024, 64)
