"""Endpoints that take new connections."""

from typing import Any

import msgspec
import pytest

from kedge.gateway import endpoints
from kedge.gateway.endpoints import MOST_CHOICES, MOST_ENDPOINTS, Endpoint, SliceIndex
from kedge.gateway.objects import SliceInfo


def slice_of(*endpoints: dict[str, Any], name: str = "s-1", **more: Any) -> SliceInfo:
    document = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "labels": {"kubernetes.io/service-name": more.pop("service", "s")},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
        **more,
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=SliceInfo)


def at(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def usable(slices: list[SliceInfo], port_name: str) -> list[Endpoint]:
    index = SliceIndex()
    index.replace(slices)
    return index.usable("n", "s", port_name)


def test_ready_and_unknown_endpoints_are_used_once_each() -> None:
    slices = [
        slice_of(at("10.0.0.2"), at("10.0.0.1", ready=True), at("10.0.0.3", ready=False)),
        slice_of(at("10.0.0.1"), name="s-2"),
    ]
    assert usable(slices, "") == [("10.0.0.1", 8080), ("10.0.0.2", 8080)]


def test_without_ready_ones_those_that_terminate_and_serve_are_used() -> None:
    ending = at("10.0.0.1", ready=False, serving=True, terminating=True)
    dead = at("10.0.0.2", ready=False, serving=False, terminating=True)
    assert usable([slice_of(ending, dead)], "") == [("10.0.0.1", 8080)]
    assert usable([slice_of(ending, dead, at("10.0.0.3"))], "") == [("10.0.0.3", 8080)]


def test_ports_are_matched_by_name_and_numbers_differ_by_slice() -> None:
    slices = [
        slice_of(at("10.0.0.1"), ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
        slice_of(at("10.0.0.2"), name="s-2", ports=[{"name": "b", "port": 3}]),
        slice_of(at("10.0.0.3"), name="s-3", ports=[{"name": "b", "port": 4, "protocol": "UDP"}]),
    ]
    assert usable(slices, "b") == [("10.0.0.1", 2), ("10.0.0.2", 3)]


def test_names_are_not_used_as_addresses() -> None:
    assert usable([slice_of(at("localhost"), addressType="FQDN")], "") == []
    assert usable([slice_of(ports=None, endpoints=None)], "") == []


def test_the_index_follows_slices() -> None:
    index = SliceIndex()
    first, second = slice_of(at("10.0.0.1")), slice_of(at("10.0.0.2"), name="s-2")
    index.replace([first])
    assert index.usable("n", "s", "") == [("10.0.0.1", 8080)]
    index.put(second)
    assert index.usable("n", "s", "") == [("10.0.0.1", 8080), ("10.0.0.2", 8080)]
    index.put(slice_of(at("10.0.0.2"), name="s-2", service="other"))
    assert index.usable("n", "s", "") == [("10.0.0.1", 8080)]
    assert index.usable("n", "other", "") == [("10.0.0.2", 8080)]
    index.remove(first)
    index.remove(first)
    assert index.usable("n", "s", "") == []


def test_endpoints_are_chosen_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    choose = endpoints.usable

    def counted(offers: Any) -> Any:
        chosen.append(1)
        return choose(offers)

    monkeypatch.setattr(endpoints, "usable", counted)
    index = SliceIndex()
    index.replace([slice_of(*(at(f"10.1.{i >> 8}.{i & 255}") for i in range(MOST_ENDPOINTS + 9)))])
    for _ in range(3):
        assert len(index.usable("n", "s", "")) == MOST_ENDPOINTS
    assert len(chosen) == 1
    index.put(slice_of(at("10.0.0.1")))
    assert index.usable("n", "s", "") == [("10.0.0.1", 8080)]
    for number in range(MOST_CHOICES + 5):
        assert index.usable("n", "s", f"p{number}") == []
    assert len(index._choices) <= MOST_CHOICES
