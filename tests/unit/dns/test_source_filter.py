from ipaddress import IPv4Network

import pytest

from kedge.dns import source_filter
from kedge.dns.source_filter import KNOWN_SECONDS, SourceFilter
from kedge.testing.clock import FakeClock

PODS = IPv4Network("10.244.0.0/16")


@pytest.mark.parametrize(
    ("source", "admitted"),
    [
        ("10.244.3.7", True),
        ("127.0.0.1", True),
        ("192.0.2.2", True),
        ("192.0.2.3", False),
        ("10.96.0.10", False),
        ("fd00::1", False),
        ("nonsense", False),
    ],
)
def test_pods_and_the_machine_itself_are_served(source: str, admitted: bool) -> None:
    sources = SourceFilter([PODS], lambda: ["192.0.2.2"], FakeClock())
    assert sources.admits(source) is admitted
    assert sources.admits(source) is admitted


async def test_the_machines_addresses_may_change() -> None:
    clock, own = FakeClock(), ["192.0.2.2"]
    sources = SourceFilter([PODS], lambda: own, clock)
    assert not sources.admits("192.0.2.3")
    own.append("192.0.2.3")
    await clock.advance(KNOWN_SECONDS)
    assert not sources.admits("192.0.2.3")
    sources.forget()
    assert sources.admits("192.0.2.3")


def test_many_addresses_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_filter, "MOST_KNOWN", 10)
    reads: list[int] = []

    def own() -> list[str]:
        reads.append(1)
        return []

    sources = SourceFilter([PODS], own, FakeClock())
    for number in range(1000):
        assert not sources.admits(f"192.0.{number >> 8}.{number & 255}")
        assert len(vars(sources)["_known"]) <= 10
    assert len(reads) == 1
