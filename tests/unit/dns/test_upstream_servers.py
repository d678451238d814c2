from collections.abc import Sequence

import pytest

from kedge.dns.upstream_servers import (
    DOWN_SECONDS,
    FAILURES,
    READ_SECONDS,
    UpstreamServers,
    addresses,
)
from kedge.testing.clock import FakeClock

ONE, TWO, THREE = (("192.0.2.1", 53), ("192.0.2.2", 53), ("192.0.2.3", 53))


def servers(clock: FakeClock, *texts: str) -> UpstreamServers:
    return UpstreamServers(lambda: texts, [], clock)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["192.0.2.1"], (ONE,)),
        (["192.0.2.1", "192.0.2.1"], (ONE,)),
        (["not-an-address", "192.0.2.1"], (ONE,)),
        (["10.96.0.10", "192.0.2.1", "10.244.0.1"], (ONE,)),
        (["fd00::53"], (("fd00::53", 53, 0, 0),)),
        ([f"192.0.2.{each}" for each in range(1, 6)], (ONE, TWO, THREE)),
        ([], ()),
        (["10.96.0.10"], ()),
    ],
)
def test_the_addresses_of_resolvers(texts: Sequence[str], found: tuple[object, ...]) -> None:
    assert addresses(texts, ["10.96.0.10", "10.244.0.1"]) == found


def test_one_server_is_asked_several_times() -> None:
    assert servers(FakeClock(), "192.0.2.1").order() == (ONE, ONE, ONE)
    assert servers(FakeClock(), "192.0.2.1", "192.0.2.2").order() == (ONE, TWO, ONE)
    assert servers(FakeClock()).order() == ()


async def test_a_server_that_is_down_comes_last_for_a_while() -> None:
    clock = FakeClock()
    known = servers(clock, "192.0.2.1", "192.0.2.2")
    for _ in range(FAILURES - 1):
        known.failed(ONE)
    assert known.order() == (ONE, TWO, ONE)
    known.failed(ONE)
    assert known.order() == (TWO, ONE, TWO)
    assert not known.all_down()
    known.failed(TWO, refused=True)
    assert known.all_down()
    await clock.advance(DOWN_SECONDS)
    assert known.order() == (ONE, TWO, ONE)
    known.failed(ONE)
    assert known.order()[0] == TWO
    known.answered(ONE)
    assert known.order()[0] == ONE


async def test_the_list_is_read_again() -> None:
    clock, listed = FakeClock(), ["192.0.2.1"]
    known = UpstreamServers(lambda: list(listed), [], clock)
    known.failed(ONE, refused=True)
    assert known.all_down()
    listed[0] = "192.0.2.2"
    assert known.current() == (ONE,)
    await clock.advance(READ_SECONDS)
    assert known.current() == (TWO,)
    listed[0] = "192.0.2.1"
    await clock.advance(READ_SECONDS)
    assert not known.all_down()
