"""Lists in pieces: the work for each piece is bounded, and so is what is kept of it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.api.core_v1.pod import pod
from kedge.api.model import ListMeta
from kedge.apiserver import object_lists, render
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import LABELS_KEPT, Item
from kedge.machinery.clock import SystemClock
from kedge.machinery.durations import format_time
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


def pod_item(number: int, *conditions: dict[str, str]) -> Item:
    document = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"p{number}", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"conditions": conditions},
    }
    return Item(f"/registry/pods/default/p{number}", number, json.dumps(document).encode())


def pod_table(items: list[Item]) -> dict[str, Any]:
    asked = Request(HttpRequest("GET", "/api/v1/pods"), None, pod.RESOURCE, "list", "", "", "")  # type: ignore[arg-type]
    pieces = render.table_pieces(asked, items, META, SystemClock().now(), "v1")
    found: dict[str, Any] = json.loads(b"".join(pieces))
    return found


def test_a_row_is_written_again_only_when_its_age_changes() -> None:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    several = [aged_item(number, made) for number in range(render.ROWS_TOGETHER + 1)]

    def table(seconds: int) -> list[str]:
        now = made + timedelta(seconds=seconds)
        rows = json.loads(b"".join(render.table_pieces(request(), several, META, now, "v1")))[
            "rows"
        ]
        return [each["cells"][-1] for each in rows]

    assert set(table(90)) == {"90s"}
    assert set(table(91)) == {"91s"}
    assert set(table(90)) == {"90s"}, "clocks may be set back"
    assert set(table(1200)) == {"20m"}
    texts = [each.row.text for each in several]
    assert set(table(1259)) == {"20m"}
    assert all(each.row.text is text for each, text in zip(several, texts, strict=True))
    assert set(table(1260)) == {"21m"}


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_row_with_a_new_age_is_the_row_of_a_table_that_was_not_kept(include: str) -> None:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    several = [aged_item(number, made) for number in range(render.ROWS_TOGETHER + 1)]
    http = HttpRequest("GET", "/api/v1/configmaps", f"includeObject={include}")
    asked = Request(http, None, RESOURCE, "list", "", "", "")  # type: ignore[arg-type]
    for seconds in (9, 10, 599, 601, 28_800, 5, 9):
        now = made + timedelta(seconds=seconds)
        fresh = [aged_item(number, made) for number in range(len(several))]
        kept, anew = (
            b"".join(render.table_pieces(asked, items, META, now, "v1"))
            for items in (several, fresh)
        )
        assert kept == anew


def test_tables_of_different_forms_share_no_row() -> None:
    several = [aged_item(number, datetime(2026, 1, 1, tzinfo=UTC)) for number in range(3)]
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)

    def table(include: str) -> list[list[str]]:
        http = HttpRequest("GET", "/api/v1/configmaps", f"includeObject={include}")
        asked = Request(http, None, RESOURCE, "list", "", "", "")  # type: ignore[arg-type]
        rows = json.loads(b"".join(render.table_pieces(asked, several, META, now, "v1")))["rows"]
        return [sorted(each.get("object", ())) for each in rows]

    names = {name: table(name)[0] for name in ("Metadata", "None", "Object", "Metadata")}
    assert names["None"] == []
    assert names["Metadata"] == ["apiVersion", "kind", "metadata"] == names["Object"]
    assert table("Metadata") == [["apiVersion", "kind", "metadata"]] * 3
    kinds = [each.row.text.count(b"PartialObjectMetadata") for each in several]
    assert kinds == [1, 1, 1]


def aged_item(number: int, made: datetime) -> Item:
    meta = {"name": f"m{number}", "namespace": "default", "creationTimestamp": format_time(made)}
    document = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}
    return Item(f"/registry/configmaps/default/m{number}", number, json.dumps(document).encode())


def test_a_table_with_limits_that_the_kernel_does_not_enforce_says_so() -> None:
    sampled = {"type": "kedge.dev/LimitsEnforced", "status": "True", "message": "cpu=sampled"}
    usual, special = pod_item(1), pod_item(2, sampled)
    as_upstream = pod_table([usual])
    assert [each["name"] for each in as_upstream["columnDefinitions"]][-1] == "Readiness Gates"
    both = pod_table([usual, special])
    last = both["columnDefinitions"][-1]
    assert (last["name"], last["priority"]) == ("Limits", 1)
    assert [each["cells"][-1] for each in both["rows"]] == ["<none>", "sampled"]
    # The rows that were kept are those of the other table.
    assert pod_table([usual])["rows"] == as_upstream["rows"]
