"""Lists in pieces: the work for each piece is bounded, and so is what is kept of it."""

import json
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.api.model import ListMeta
from kedge.apiserver import render
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
    items = [item(number, size=render.TURN // 2) for number in range(9)]
    made = tables(items) if form == "table" else render.partial_pieces(items, META, "v1")
    pieces = list(made)
    assert len(pieces) >= 9
    shown = json.loads(b"".join(pieces))
    assert len(shown["rows" if form == "table" else "items"]) == 9


def test_small_objects_are_shown_in_one_piece() -> None:
    (piece,) = tables([item(number) for number in range(9)])
    assert len(json.loads(piece)["rows"]) == 9


@pytest.mark.parametrize("count", [0, 1, 5, 900])
@pytest.mark.parametrize("size", [10, 3_000, render.TURN])
def test_a_list_is_indented_piece_by_piece(count: int, size: int) -> None:
    items = [item(number, size) for number in range(count if size < render.TURN else count % 7)]
    for plain in (render.list_pieces, lambda *rest: tables(rest[1])):
        whole = b"".join(plain(RESOURCE, items, META))
        indented = b"".join(render.indented_pieces(plain(RESOURCE, items, META)))
        assert indented == msgspec.json.format(whole, indent=2) + b"\n"


def test_nothing_that_was_derived_from_a_large_object_is_kept() -> None:
    small, large = item(1, a="b"), item(2, LABELS_KEPT, a="b")
    for each in (small, large):
        assert each.labels == {"a": "b"}
    list(tables([small, large]))
    assert (small.row is None, large.row is None) == (False, True)
    assert small.labels is small.labels
    assert large.labels is not large.labels


def test_no_document_is_decoded_while_a_piece_of_yaml_is_sent() -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{%b}}' % (
        b",".join(b'"key-%d":"%b"' % (i, b"v" * 90) for i in range(3_000))
    )
    items = [Item(f"/registry/configmaps/default/{i}", i, body) for i in range(3)]
    assert b"key-2999" in b"".join(render.yaml_list_pieces(RESOURCE, items[:1], META))
    before = sys.getallocatedblocks()
    pieces = render.yaml_list_pieces(RESOURCE, items, META)
    first = next(pieces)
    # A decoded document has 6,000 blocks.
    assert sys.getallocatedblocks() - before < 1_000
    assert len(first) + sum(map(len, pieces)) > 3 * len(body)
