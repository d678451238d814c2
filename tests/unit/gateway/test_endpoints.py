"""Endpoints that take new connections."""

from typing import Any

import msgspec

from kedge.gateway.endpoints import SliceIndex, usable
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
        slice_of(at("10.0.0.2"), ports=[{"name": "b", "port": 3}]),
        slice_of(at("10.0.0.3"), ports=[{"name": "b", "port": 4, "protocol": "UDP"}]),
    ]
    assert usable(slices, "b") == [("10.0.0.1", 2), ("10.0.0.2", 3)]


def test_names_are_not_used_as_addresses() -> None:
    assert usable([slice_of(at("localhost"), addressType="FQDN")], "") == []
    assert usable([slice_of(ports=None, endpoints=None)], "") == []


def test_the_index_follows_slices() -> None:
    index = SliceIndex()
    first, second = slice_of(at("10.0.0.1")), slice_of(at("10.0.0.2"), name="s-2")
    index.replace([first])
    index.put(second)
    assert {each.metadata.name for each in index.of("n", "s")} == {"s-1", "s-2"}
    index.put(slice_of(at("10.0.0.2"), name="s-2", service="other"))
    assert (index.of("n", "s"), len(index.of("n", "other"))) == ([first], 1)
    index.remove(first)
    index.remove(first)
    assert index.of("n", "s") == []
