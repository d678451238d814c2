from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.protobuf_wire import bytes_field, fields, varint_field
from kedge.storage.etcd import messages as m


def operations(request: bytes, number: int) -> list[tuple[int, dict[int, object]]]:
    """The operations of a branch of a transaction: the kind of each, and its fields."""
    return [
        (kind, {inner: value for inner, _, value in fields(content)})
        for field, _, operation in fields(request)
        if field == number
        for kind, _, content in fields(operation)
    ]


def key_value(value: m.EtcdKeyValue) -> bytes:
    return b"".join(
        (
            bytes_field(1, value.key),
            varint_field(2, value.created),
            varint_field(3, value.revision),
            varint_field(4, value.version),
            bytes_field(5, value.value),
            varint_field(6, value.lease),
        )
    )


def header(cluster: int, revision: int) -> bytes:
    return bytes_field(1, varint_field(1, cluster) + varint_field(3, revision))


KEY_VALUES = st.builds(
    m.EtcdKeyValue,
    st.binary(max_size=20),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.binary(max_size=50),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(KEY_VALUES, max_size=4), st.integers(0, 2**62), st.integers(0, 2**64 - 1))
def test_a_range_is_read_as_it_was_written(
    found: list[m.EtcdKeyValue], total: int, cluster: int
) -> None:
    data = header(cluster, 7) + b"".join(bytes_field(2, key_value(each)) for each in found)
    answer = m.read_range(data + varint_field(3, 1) + varint_field(4, total))
    assert answer == m.RangeAnswer(m.EtcdHeader(cluster, 7), found, total)


def test_a_creation_compares_with_revision_0_and_writes_one_key() -> None:
    request = m.put_if(b"/a", b"value", 0, lease=9)
    compare = next(value for number, _, value in fields(request) if number == 1)
    assert {number: value for number, _, value in fields(compare)} == {2: 2, 3: b"/a", 6: 0}
    assert operations(request, 2) == [(2, {1: b"/a", 2: b"value", 3: 9})]
    assert operations(request, 3) == [(1, {1: b"/a"})]


def test_an_update_also_reads_the_revision_of_the_creation_without_the_value() -> None:
    request = m.put_if(b"/a", b"value", 5)
    assert operations(request, 2) == [(2, {1: b"/a", 2: b"value"}), (1, {1: b"/a", 8: 1})]


def test_a_deletion_asks_for_the_last_value() -> None:
    assert operations(m.delete_if(b"/a", 5), 2) == [(3, {1: b"/a", 3: 1})]


def test_the_key_in_the_answer_to_a_transaction_is_found() -> None:
    found = m.EtcdKeyValue(b"/a", 2, 5, 3, b"value")
    put = bytes_field(3, bytes_field(2, header(1, 6)))
    read = bytes_field(3, bytes_field(1, header(1, 6) + bytes_field(2, key_value(found))))
    deleted = bytes_field(3, bytes_field(3, varint_field(2, 1) + bytes_field(3, key_value(found))))
    start = header(1, 6) + varint_field(2, 1)
    assert m.read_txn(start + put) == m.TxnAnswer(m.EtcdHeader(1, 6), True, None)
    assert m.read_txn(start + put + read).found == found
    assert m.read_txn(start + deleted).found == found
    assert m.read_txn(header(1, 6) + read) == m.TxnAnswer(m.EtcdHeader(1, 6), False, found)


def test_a_watch_answer_has_its_events_in_order() -> None:
    new, old = m.EtcdKeyValue(b"/a", 2, 5, 2, b"new"), m.EtcdKeyValue(b"/a", 2, 3, 1, b"old")
    gone = m.EtcdKeyValue(b"/b", 0, 6)
    put = bytes_field(2, key_value(new)) + bytes_field(3, key_value(old))
    delete = varint_field(1, 1) + bytes_field(2, key_value(gone))
    data = header(1, 6) + varint_field(7, 1) + bytes_field(11, put) + bytes_field(11, delete)
    answer = m.read_watch(data)
    assert answer.is_fragment
    assert answer.events == [m.EtcdEvent(False, new, old), m.EtcdEvent(True, gone, None)]


def test_a_canceled_watch_says_why() -> None:
    data = header(1, 9) + varint_field(4, 1) + varint_field(5, 4) + bytes_field(6, b"compacted")
    answer = m.read_watch(data)
    assert (answer.canceled, answer.compacted, answer.reason) == (True, 4, "compacted")


def test_other_answers_are_read() -> None:
    assert m.read_lease(header(1, 1) + varint_field(2, 42)) == 42
    assert m.read_token(bytes_field(2, b"token")) == "token"
    status = bytes_field(2, b"3.5.1") + varint_field(3, 100) + bytes_field(8, b"alarm:NOSPACE")
    assert m.read_status(status + varint_field(9, 50)) == m.StatusAnswer(
        "3.5.1", 100, 0, 50, ("alarm:NOSPACE",)
    )
