"""Changes of one nf_tables table, collected into one batch that the kernel applies as a whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kedge.node.network.nftables.attributes import (
    INET,
    attribute,
    items,
    long_number,
    message,
    nested,
    number,
    resource_message,
    text,
)
from kedge.node.network.nftables.expressions import Rule

_SUBSYSTEM: Final = 10
_BATCH_BEGIN, _BATCH_END = 16, 17
_NEW_TABLE, _DELETE_TABLE = 0, 2
_NEW_CHAIN, _DELETE_CHAIN = 3, 5
_NEW_RULE, _DELETE_RULE = 6, 8
_NEW_SET, _DELETE_SET = 9, 11
_NEW_ELEMENTS, _DELETE_ELEMENTS = 12, 14
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_MESSAGE_ELEMENTS: Final = 500
"""A list must stay below 65,536 bytes."""

IPV4, HARDWARE, PROTOCOL, PORT, MARK, LINK, VERDICT = 7, 9, 12, 13, 19, 20, 0xFFFFFF00
"""Data types. The kernel ignores most of them, but the program `nft` aborts if they are wrong."""
_SIZES: Final = {IPV4: 4, HARDWARE: 6, PROTOCOL: 1, PORT: 2, MARK: 4, LINK: 4}
_INTERVAL, _MAP, _TIMEOUT, _DYNAMIC = 4, 8, 16, 32
_INTERVAL_END: Final = 1
OWNER, PERSIST = 2, 4


class ChainHook(NamedTuple):
    """The place of a base chain among the hooks of the kernel."""

    type: str
    """filter or nat."""
    number: int
    priority: int


PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING = range(5)


class SetSpec(NamedTuple):
    """The declaration of a set, or of a map if it has data."""

    key: tuple[int, ...]
    data: tuple[int, ...] = ()
    timeout_seconds: int = 0
    """Elements are added by packets and vanish after so many seconds; 0 for ordinary sets."""
    counts_connections: bool = False
    """Elements are added by packets and vanish with their last connection."""
    has_ranges: bool = False


class Batch:
    """Changes of one table, in order."""

    def __init__(self, table: str, family: int = INET) -> None:
        self._table = text(1, table)
        self._family = family
        self._messages: list[bytes] = []
        self._sets = 0

    def __len__(self) -> int:
        return len(self._messages)

    def packed(self) -> bytes:
        """Return the batch; only its end asks for an acknowledgement."""
        end = len(self._messages) + 1
        begin = resource_message(_BATCH_BEGIN, _REQUEST, 0, b"", family=0, resource=_SUBSYSTEM)
        closing = resource_message(
            _BATCH_END, _REQUEST | _ACK, end, b"", family=0, resource=_SUBSYSTEM
        )
        return b"".join((begin, *self._messages, closing))

    def add_table(self, flags: int) -> None:
        self._add(_NEW_TABLE, _CREATE, number(2, flags) if flags else b"")

    def delete_table(self) -> None:
        self._add(_DELETE_TABLE, 0, b"")

    def add_chain(self, name: str, hook: ChainHook | None = None) -> None:
        place = b""
        if hook is not None:
            where = nested(4, number(1, hook.number), number(2, hook.priority))
            place = where + number(5, 1) + text(7, hook.type)
        self._add(_NEW_CHAIN, _CREATE, text(3, name) + place)

    def delete_chain(self, name: str) -> None:
        self._add(_DELETE_CHAIN, 0, text(3, name))

    def add_rules(self, chain: str, rules: Iterable[Rule]) -> None:
        for each in rules:
            self._add(_NEW_RULE, _CREATE | _APPEND, text(2, chain) + each)

    def flush_chain(self, chain: str) -> None:
        self._add(_DELETE_RULE, 0, text(2, chain))

    def add_set(self, name: str, spec: SetSpec) -> None:
        self._sets += 1
        flags = (_MAP if spec.data else 0) | (_TIMEOUT if spec.timeout_seconds else 0)
        flags |= _INTERVAL if spec.has_ranges else 0
        is_dynamic = spec.timeout_seconds or spec.counts_connections
        body = text(2, name) + number(3, flags | (_DYNAMIC if is_dynamic else 0))
        body += number(4, _type(spec.key)) + number(5, _size(spec.key))
        if spec.data:
            body += number(6, _type(spec.data)) + number(7, _size(spec.data))
        body += number(10, self._sets)
        if spec.timeout_seconds:
            body += long_number(11, spec.timeout_seconds * 1000)
        if is_dynamic:
            body += nested(9, number(1, _DYNAMIC_SIZE))
        self._add(_NEW_SET, _CREATE, body)

    def delete_set(self, name: str) -> None:
        self._add(_DELETE_SET, 0, text(2, name))

    def add_elements(self, name: str, elements: Mapping[bytes, bytes]) -> None:
        """Add elements; data is empty for sets."""
        encoded = (
            nested(1, attribute(1, key)) + (nested(2, data) if data else b"")
            for key, data in elements.items()
        )
        self._elements(_NEW_ELEMENTS, _CREATE, name, encoded)

    def add_ranges(self, name: str, size: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Add ranges from the first to the last number; numbers have so many bytes. The ranges must
        not touch each other."""
        self._elements(_NEW_ELEMENTS, _CREATE, name, _range_elements(size, ranges))

    def add_expiring_elements(self, name: str, elements: Mapping[bytes, int]) -> None:
        """Add elements that vanish after so many milliseconds."""
        encoded = (
            nested(1, attribute(1, key)) + long_number(5, left) for key, left in elements.items()
        )
        self._elements(_NEW_ELEMENTS, _CREATE, name, encoded)

    def delete_elements(self, name: str, keys: Sequence[bytes]) -> None:
        encoded = (nested(1, attribute(1, key)) for key in keys)
        self._elements(_DELETE_ELEMENTS, 0, name, encoded)

    def _elements(self, kind: int, flags: int, name: str, encoded: Iterable[bytes]) -> None:
        left = iter(encoded)
        while some := list(islice(left, _MESSAGE_ELEMENTS)):
            self._add(kind, flags, text(2, name) + items(3, some))

    def _add(self, kind: int, flags: int, body: bytes) -> None:
        sequence = len(self._messages) + 1
        kind |= _SUBSYSTEM << 8
        body = self._table + body
        made = message(kind, _REQUEST | flags, sequence, body, family=self._family)
        self._messages.append(made)


_DYNAMIC_SIZE: Final = 65536
"""Elements of a set that packets add to: clients with a session at one endpoint."""


def _range_elements(size: int, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the two ends of each range; the kernel stores the number after the last."""
    after = 1 << 8 * size
    for first, last in ranges:
        yield nested(1, attribute(1, first.to_bytes(size, "big")))
        if last + 1 < after:
            end = nested(1, attribute(1, (last + 1).to_bytes(size, "big")))
            yield end + number(3, _INTERVAL_END)


def value(data: bytes) -> bytes:
    """Return the data of an element that is not a verdict."""
    return attribute(1, data)


def _type(fields: tuple[int, ...]) -> int:
    if fields == (VERDICT,):
        return VERDICT
    combined = 0
    for each in fields:
        combined = combined << 6 | each
    return combined


def _size(fields: tuple[int, ...]) -> int:
    if fields == (VERDICT,):
        return 16
    # A field takes whole registers, unless it is the only one.
    sizes = [_SIZES[each] for each in fields]
    return sizes[0] if len(sizes) == 1 else sum((size + 3) & ~3 for size in sizes)
