"""A batch is one message to the kernel: begin, changes, end."""

from kedge.node.network.nftables import batch
from kedge.node.network.nftables.attributes import read_attributes, read_messages, read_text
from kedge.node.network.nftables.batch import Batch, ChainHook, SetSpec


def kinds(made: Batch) -> list[int]:
    return [kind & 0xFF for kind, _, _ in read_messages(made.packed())]


def only(made: Batch) -> dict[int, bytes]:
    _, (_, _, content), _ = read_messages(made.packed())
    return read_attributes(content[4:])


def test_changes_lie_between_begin_and_end_in_order() -> None:
    made = Batch("t")
    made.delete_table()
    made.add_table(6)
    made.add_chain("c")
    assert kinds(made) == [16, 2, 0, 3, 17]
    assert [number for _, number, _ in read_messages(made.packed())] == [0, 1, 2, 3, 4]


def test_a_base_chain_has_a_hook_and_accepts() -> None:
    made = Batch("t")
    made.add_chain("c", ChainHook("nat", batch.PREROUTING, -100))
    found = only(made)
    assert read_text(found[1]) == "t"
    assert read_text(found[7]) == "nat"
    assert found[5] == b"\0\0\0\1"
    assert read_attributes(found[4])[2] == (-100).to_bytes(4, "big", signed=True)


def test_a_map_declares_honest_types() -> None:
    made = Batch("t")
    made.add_set("m", SetSpec((batch.IPV4, batch.PROTOCOL, batch.PORT), (batch.VERDICT,)))
    found = only(made)
    assert int.from_bytes(found[4], "big") == (7 << 6 | 12) << 6 | 13
    assert int.from_bytes(found[5], "big") == 12
    assert int.from_bytes(found[6], "big") == 0xFFFFFF00
    assert int.from_bytes(found[3], "big") == 8


def test_a_set_of_clients_forgets_them() -> None:
    made = Batch("t")
    made.add_set("s", SetSpec((batch.IPV4,), timeout_seconds=10800))
    found = only(made)
    assert int.from_bytes(found[3], "big") == 16 | 32
    assert int.from_bytes(found[5], "big") == 4
    assert int.from_bytes(found[11], "big") == 10_800_000


def test_many_elements_take_several_messages() -> None:
    made = Batch("t")
    made.add_elements("m", {number.to_bytes(4, "big"): b"" for number in range(1200)})
    made.delete_elements("m", [bytes(4)])
    assert kinds(made) == [16, 12, 12, 12, 14, 17]


def test_without_changes_there_is_nothing_to_send() -> None:
    made = Batch("t")
    made.add_elements("m", {})
    assert not len(made)
