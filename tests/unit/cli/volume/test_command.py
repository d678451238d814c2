"""`kedge volume`: its flags."""

import pytest

from kedge.cli.main import parser


def test_list_uses_a_kubeconfig_and_du_a_state_directory() -> None:
    listing = parser().parse_args(["volume", "list", "-n", "shop", "--context", "c"])
    assert (listing.deed, listing.namespace, listing.context) == ("list", "shop", "c")
    usage = parser().parse_args(["volume", "du", "--name", "other", "-o", "json"])
    assert (usage.deed, usage.name, usage.output) == ("du", "other", "json")


@pytest.mark.parametrize("words", [(), ("rm",), ("du", "-n", "x"), ("list", "--name", "x")])
def test_unknown_words_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["volume", *words])
