"""The help and the keys that have an effect are the same."""

import re

from kedge.cli.usage.top.live import keys, view_state

NAMES = {
    "Up": keys.UP,
    "Down": keys.DOWN,
    "PgUp": keys.PAGE_UP,
    "PgDn": keys.PAGE_DOWN,
    "Space": " ",
    "Home": keys.HOME,
    "End": keys.END,
    "Enter": keys.ENTER,
    "Esc": keys.ESCAPE,
    "Backspace": keys.BACKSPACE,
    "Tab": keys.TAB,
}


def test_the_help_names_every_key() -> None:
    named = [each for line in keys.HELP for each in re.split(", ", line.keys)]
    explained = {NAMES.get(each, each) for each in named} | {keys.BACK_TAB}
    effective = {*view_state._ACTIONS, *view_state._MOVES, *keys.ALIASES}
    assert explained == effective


def test_the_footer_has_the_way_out() -> None:
    assert {"help", "quit", "back"} <= {each.label for each in keys.HELP}
