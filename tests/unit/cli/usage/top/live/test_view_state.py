"""The state of the live view after each key."""

from typing import Any

import pytest

from kedge.cli.usage.top.live import keys
from kedge.cli.usage.top.live.view_state import (
    Level,
    Mode,
    Place,
    Shown,
    SortOrder,
    ViewState,
    permitted,
    pressed,
    settled,
)

ROWS = ("a", "b", "c", "d", "e")
SHOWN = Shown(ROWS, page=3, text_lines=10, text_page=4)
NODES = ViewState()
PODS = ViewState(place=Place(Level.PODS, node="n1"), back=(Place(Level.NODES, selected="n1"),))
CONTAINERS = ViewState(place=Place(Level.CONTAINERS, pod="shop/web"))
LOGS = PODS._replace(mode=Mode.LOGS, subject="b")


def after(state: ViewState, *pressed_keys: str, shown: Shown = SHOWN) -> ViewState:
    for key in pressed_keys:
        state = settled(pressed(state, key, shown), shown)
    return state


@pytest.mark.parametrize(
    ("pressed_keys", "selected", "top"),
    [
        ([keys.DOWN], "b", 0),
        (["j", "j"], "c", 0),
        (["j", "j", "j"], "d", 1),
        (["j", "k"], "a", 0),
        ([keys.UP], "a", 0),
        ([keys.PAGE_DOWN], "d", 1),
        ([" ", " "], "e", 2),
        ([keys.END], "e", 2),
        (["G", "g"], "a", 0),
        (["G", keys.PAGE_UP], "b", 1),
    ],
)
def test_moving(pressed_keys: list[str], selected: str, top: int) -> None:
    place = after(PODS, *pressed_keys).place
    assert (place.selected, ROWS[place.position], place.top) == (selected, selected, top)


@pytest.mark.parametrize(
    ("state", "key", "changes"),
    [
        (NODES, "s", {"sort": SortOrder("cpu%", True)}),
        (NODES, ">", {"sort": SortOrder("cpu%", True)}),
        (NODES, "<", {"sort": SortOrder("pods", True)}),
        (NODES._replace(sort=SortOrder("memory%")), "s", {"sort": SortOrder("name", False)}),
        (NODES._replace(sort=SortOrder("name")), "<", {"sort": SortOrder("memory%", True)}),
        (NODES, "r", {"sort": SortOrder("cpu", False)}),
        (NODES, "/", {"mode": Mode.FILTER}),
        (NODES, "1", {"window": "10s"}),
        (NODES, "3", {"window": "1h"}),
        (NODES, "4", {"window": "1d"}),
        (NODES, keys.TAB, {"window": "1h"}),
        (NODES, keys.BACK_TAB, {"window": "10s"}),
        (NODES._replace(window="1d"), keys.TAB, {"window": "10s"}),
        (NODES, "m", {"statistic": "max"}),
        (NODES._replace(statistic="95th"), "m", {"statistic": "mean"}),
        (NODES, "p", {"paused": True}),
        (NODES._replace(paused=True), "p", {"paused": False}),
        (NODES, "?", {"mode": Mode.HELP, "pane_top": 0}),
        (NODES, "q", {"mode": Mode.ENDED}),
        (NODES, "x", {}),
        (NODES, "5", {}),
        (NODES, "", {}),
        (NODES._replace(paused=True), "a", {"namespace": "default", "paused": False}),
        (PODS._replace(namespace="shop"), "a", {"namespace": ""}),
        (PODS, "l", {"mode": Mode.LOGS, "subject": "a", "pane_top": None}),
        (PODS, "w", {"mode": Mode.WHY, "subject": "a", "pane_top": 0}),
        (CONTAINERS, keys.ENTER, {"mode": Mode.LOGS, "subject": "a", "pane_top": None}),
        (LOGS, "w", {"mode": Mode.WHY, "pane_top": 0}),
        (LOGS, "q", {"mode": Mode.TABLE, "subject": ""}),
        (LOGS, keys.ESCAPE, {"mode": Mode.TABLE, "subject": ""}),
        (LOGS, "p", {"paused": True}),
        (LOGS, "s", {}),
        (NODES._replace(mode=Mode.HELP), "?", {"mode": Mode.TABLE}),
        (NODES._replace(mode=Mode.HELP), "l", {}),
        (NODES._replace(mode=Mode.ENDED), "l", {}),
    ],
)
def test_a_key_changes_only_what_it_is_for(
    state: ViewState, key: str, changes: dict[str, Any]
) -> None:
    assert pressed(state, key, SHOWN) == state._replace(**changes)


@pytest.mark.parametrize("key", ["l", "w"])
def test_logs_and_why_of_a_node_lead_to_its_pods(key: str) -> None:
    state = pressed(NODES, key, SHOWN)
    assert state.mode is Mode.TABLE
    assert "Enter" in state.notice
    assert pressed(state, keys.DOWN, SHOWN).notice == ""


@pytest.mark.parametrize("key", ["l", "w", keys.ENTER, keys.DOWN, keys.END])
def test_an_empty_table_has_nothing_to_open(key: str) -> None:
    state = pressed(PODS, key, Shown())
    assert state._replace(notice="") == PODS


# The way down and back.


def test_enter_opens_the_pods_of_a_node_and_the_containers_of_a_pod() -> None:
    pods = after(NODES, keys.DOWN, keys.ENTER)
    assert pods.place == Place(Level.PODS, node="b")
    containers = after(pods, keys.DOWN, keys.DOWN, keys.ENTER)
    assert containers.place == Place(Level.CONTAINERS, node="b", pod="c")


def test_escape_leads_back_to_the_same_line() -> None:
    before = after(NODES, keys.END)
    below = after(before, keys.ENTER, keys.END, keys.ENTER)
    assert after(below, keys.ESCAPE, keys.BACKSPACE) == before


def test_escape_clears_the_filter_first() -> None:
    filtered = after(PODS, "/", "x", keys.ENTER)
    assert after(filtered, keys.ESCAPE) == PODS
    assert after(filtered, keys.ESCAPE, keys.ESCAPE).place.level is Level.NODES


def test_a_filter_is_that_of_one_table() -> None:
    below = after(NODES, "/", "x", keys.ENTER, keys.ENTER)
    assert below.place.filter == ""
    assert after(below, keys.ESCAPE).place.filter == "x"


def test_a_view_that_began_with_pods_has_nodes_above_them() -> None:
    began = ViewState(place=Place(Level.PODS, node="n1"))
    assert pressed(began, keys.ESCAPE, SHOWN).place == Place(Level.NODES, selected="n1")
    assert pressed(CONTAINERS, keys.ESCAPE, SHOWN).place.level is Level.PODS
    assert "q" in pressed(NODES, keys.ESCAPE, SHOWN).notice


def test_a_column_that_another_table_lacks_is_no_order_there() -> None:
    by_node = ViewState(place=Place(Level.PODS), sort=SortOrder("node", False))
    assert pressed(by_node, keys.ENTER, SHOWN).sort == SortOrder("cpu", True)
    by_memory = by_node._replace(sort=SortOrder("memory", False))
    assert pressed(by_memory, keys.ENTER, SHOWN).sort == SortOrder("memory", False)


# Typing a filter.


@pytest.mark.parametrize(
    ("typed", "filter_", "mode"),
    [
        ("web", "web", Mode.FILTER),
        ("jq?/1", "jq?/1", Mode.FILTER),
        (["w", keys.BACKSPACE], "", Mode.FILTER),
        (["w", keys.BACKSPACE, keys.BACKSPACE], "", Mode.TABLE),
        (["w", keys.ENTER], "w", Mode.TABLE),
        (["w", keys.ESCAPE], "", Mode.TABLE),
        (["w", keys.TAB, "", keys.HOME], "w", Mode.FILTER),
        ("x" * 300, "x" * 100, Mode.FILTER),
    ],
)
def test_typing(typed: Any, filter_: str, mode: Mode) -> None:
    state = after(PODS, "/", *typed)
    assert (state.place.filter, state.mode) == (filter_, mode)


# Text.


@pytest.mark.parametrize(
    ("pressed_keys", "top"),
    [
        ([], None),
        ([keys.UP], 5),
        ([keys.PAGE_UP], 2),
        (["g"], 0),
        (["g", keys.DOWN], 1),
        (["g", keys.PAGE_DOWN, keys.PAGE_DOWN], None),
        ([keys.UP, "G"], None),
        ([keys.UP, keys.DOWN], None),
    ],
)
def test_logs_scroll_and_follow_again_at_the_end(pressed_keys: list[str], top: int | None) -> None:
    assert after(LOGS, *pressed_keys).pane_top == top


def test_other_text_does_not_follow_its_end() -> None:
    why = after(PODS, "w", keys.END)
    assert why.pane_top == 6


# Lines that change.


def test_the_selection_stays_with_its_line() -> None:
    state = after(PODS, keys.DOWN)
    moved = settled(state, Shown(("x", "y", "z", "b"), page=3))
    assert (moved.place.selected, moved.place.position, moved.place.top) == ("b", 3, 1)


def test_before_the_first_key_the_first_line_is_selected() -> None:
    moved = settled(PODS, Shown(("x", "a"), page=3))
    assert (moved.place.selected, moved.place.position) == ("", 0)


def test_the_selection_of_a_line_that_goes_stays_where_it_was() -> None:
    state = after(PODS, keys.END)
    left = settled(state, Shown(("a", "b"), page=3))
    assert (left.place.selected, left.place.position, left.place.top) == ("b", 1, 0)
    assert settled(state, Shown((), page=3)).place.position == 0


def test_a_smaller_screen_still_shows_the_selection() -> None:
    state = after(PODS, keys.END)
    assert settled(state, SHOWN._replace(page=1)).place.top == 4


# Permissions.


def test_somebody_who_may_not_read_nodes_sees_pods() -> None:
    state = NODES._replace(own_namespace="shop")
    found = permitted(state, nodes=False, all_pods=False)
    assert (found.place, found.namespace) == (Place(Level.PODS), "shop")
    assert permitted(state, nodes=True, all_pods=True) == state
    assert permitted(PODS, nodes=False, all_pods=True) == PODS
