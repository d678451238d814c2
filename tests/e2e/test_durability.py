"""What was acknowledged is there after `kill -9`, and watches go on where they were cut off."""

from __future__ import annotations

import json
import threading
import urllib.error
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.e2e.conftest import Api, OwnCluster

PATH = "/api/v1/namespaces/default/configmaps"
SELECTED = f"{PATH}?labelSelector=of%3Dtest"
WRITERS = 4
CUTS = 5
ENOUGH = 40
"""Writes that are to be acknowledged before each cut."""

# Whatever a connection says when its other end dies.
CUT_OFF = (urllib.error.URLError, HTTPException, OSError, ValueError)


class Writer(threading.Thread):
    """Creates one object after the other until the server goes away."""

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._prefix = name
        self.acknowledged: dict[str, int] = {}

    def run(self) -> None:
        number = 0
        try:
            while True:
                name = f"{self._prefix}-{number}"
                document = {"metadata": {"name": name, "labels": {"of": "test"}}}
                created = self._api.create(PATH, document)
                self.acknowledged[name] = int(created["metadata"]["resourceVersion"])
                number += 1
        except CUT_OFF:
            return


class Watcher(threading.Thread):
    """Follows the objects from a version on until the server goes away."""

    def __init__(self, api: Api, version: int, seen: list[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._version = version
        self.seen = seen

    def run(self) -> None:
        request = self._api.request("GET", f"{SELECTED}&watch=1&resourceVersion={self._version}")
        try:
            with self._api.open(request, timeout=60) as stream:
                for line in stream:
                    event = json.loads(line)
                    meta = event["object"]["metadata"]
                    assert event["type"] == "ADDED"
                    self.seen.append((meta["name"], int(meta["resourceVersion"])))
        except CUT_OFF:
            return


def stored(api: Api) -> dict[str, int]:
    items = api.get(SELECTED)["items"]
    return {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in items}


def test_no_acknowledged_write_is_lost_and_no_event_missed(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up().api
    acknowledged: dict[str, int] = {}
    seen: list[tuple[str, int]] = []
    start = int(api.get(SELECTED)["metadata"]["resourceVersion"])
    for cut in range(CUTS):
        watcher = Watcher(api, seen[-1][1] if seen else start, seen)
        writers = [Writer(api, f"c{cut}-w{number}") for number in range(WRITERS)]
        for thread in (watcher, *writers):
            thread.start()
        eventually(lambda writers=writers: sum(len(w.acknowledged) for w in writers) >= ENOUGH)
        own_cluster.kill()
        for thread in (watcher, *writers):
            thread.join(20)
            assert not thread.is_alive()
        before = max(acknowledged.values(), default=start)
        for writer in writers:
            acknowledged |= writer.acknowledged
            assert all(version > before for version in writer.acknowledged.values())

        api = own_cluster.up().api
        there = stored(api)
        assert {name: there.get(name) for name in acknowledged} == acknowledged
        assert {name: there.get(name) for name, _ in seen} == dict(seen)
        version = int(api.get(SELECTED)["metadata"]["resourceVersion"])
        assert version >= max(there.values())

    last = Watcher(api, seen[-1][1], seen)
    last.start()
    there = stored(api)
    eventually(lambda: len(seen) >= len(there))
    assert seen == sorted(there.items(), key=lambda item: item[1])
    assert len(set(there.values())) == len(there)


def test_a_clean_restart_keeps_watches_whole(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up().api
    seen: list[tuple[str, int]] = []
    start = int(api.get(SELECTED)["metadata"]["resourceVersion"])
    for name in ("one", "two"):
        api.create(PATH, {"metadata": {"name": name, "labels": {"of": "test"}}})
    Watcher(api, start, seen).start()
    eventually(lambda: len(seen) == 2)
    own_cluster.kedge("down", *own_cluster.which)
    api = own_cluster.up().api
    api.create(PATH, {"metadata": {"name": "three", "labels": {"of": "test"}}})
    again: list[tuple[str, int]] = []
    Watcher(api, seen[0][1], again).start()
    eventually(lambda: len(again) == 2)
    assert [name for name, _ in again] == ["two", "three"]
