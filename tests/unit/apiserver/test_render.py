"""Lists in pieces: the work for each piece is bounded, and so is what is kept of it."""

import json
from collections.abc import Iterator

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.api.model import ListMeta
from kedge.apiserver import object_lists, render
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import LABELS_KEPT, Item
from kedge.machinery.clock import SystemClock
from kedge.web.message import HttpRequest

META = ListMeta(resourceVersion="7")


def item(number: int, size: int = 100, **labels: str) -> Item:
    meta = {"name": f"m{number}", "namespace": "default", "labels": labels}
    document = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": meta,
        "data": {"a": "x" * size},
    }
    return Item(f"/registry/configmaps/default/m{number}", number, json.dumps(document).encode())


def request() -> Request:
    http = HttpRequest("GET", "/api/v1/configmaps")
    return Request(http, None, RESOURCE, "list", "", "", "")  # type: ignore[arg-type]


def tables(items: list[Item]) -> Iterator[bytes]:
    return render.table_pieces(request(), items, META, SystemClock().now(), "v1")


@pytest.mark.parametrize("form", ["table", "partial"])
def test_few_large_objects_are_shown_at_a_time(form: str) -> None:
    items = [item(number, size=object_lists.TURN // 2) for number in range(9)]
    made = tables(items) if form == "table" else object_lists.partial_pieces(items, META, "v1")
    pieces = list(made)
    assert len(pieces) >= 9
    shown = json.loads(b"".join(pieces))
    assert len(shown["rows" if form == "table" else "items"]) == 9


def test_small_objects_are_shown_in_one_piece() -> None:
    (piece,) = tables([item(number) for number in range(9)])
    assert len(json.loads(piece)["rows"]) == 9


def test_nothing_that_was_derived_from_a_large_object_is_kept() -> None:
    small, large = item(1, a="b"), item(2, LABELS_KEPT, a="b")
    for each in (small, large):
        assert each.labels == {"a": "b"}
    list(tables([small, large]))
    assert (small.row is None, large.row is None) == (False, True)
    assert small.labels is small.labels
    assert large.labels is not large.labels
