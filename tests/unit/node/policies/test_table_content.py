"""Changes of a table contain what changed, and nothing else."""

from kedge.node.network.nftables import batch
from kedge.node.network.nftables.batch import SetSpec
from kedge.node.network.ruleset import RangeElements, RuleChain
from kedge.node.policies.table_content import TableContent

SPEC = SetSpec((batch.IPV4,))


def content() -> TableContent:
    return TableContent({"base": SPEC}, {})


def test_what_is_confirmed_is_not_written_again() -> None:
    made = content()
    made.put("base", b"1234")
    assert len(made.change("t")) == 2
    made.confirm()
    assert len(made.change("t")) == 0
    made.drop("base", b"1234")
    assert len(made.change("t")) == 1


def test_a_set_stays_until_its_last_holder_releases_it() -> None:
    made = content()
    made.hold_set("s", SetSpec((batch.PORT,), has_ranges=True), RangeElements(2, [(1, 5)]))
    made.hold_set("s", SPEC)
    made.confirm()
    made.release_set("s")
    assert len(made.change("t")) == 0
    made.release_set("s")
    assert len(made.change("t")) == 1
    assert made.everything().ranges == {}


def test_a_chain_that_comes_back_before_the_next_write_changes_nothing() -> None:
    made = content()
    made.hold_chain("c", RuleChain(()))
    made.confirm()
    made.release_chain("c")
    made.hold_chain("c", RuleChain(()))
    assert len(made.change("t")) == 0
    made.release_chain("c")
    # Emptied, then deleted.
    assert len(made.change("t")) == 2
