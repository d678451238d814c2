"""The messages of etcd's API that the store needs, as bytes on the wire.

Written by hand and not by the generic codec of device plugins: each write passes through here, and
a table of fields would take several times as long.
"""

from typing import Final, NamedTuple

from kedge.machinery.protobuf_wire import bytes_field, fields, signed, varint_field
from kedge.machinery.write_guard import WriteGuard

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
COMPACT: Final = "/etcdserverpb.KV/Compact"
WATCH: Final = "/etcdserverpb.Watch/Watch"
LEASE_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
STATUS: Final = "/etcdserverpb.Maintenance/Status"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"

ALL: Final = b"\0"
"""As the first key and as the end of a range: all keys."""

_MOD: Final = 2
"""Compare.target: the revision of the last write of the key."""


class EtcdKeyValue(NamedTuple):
    """One key as etcd sends it."""

    key: bytes = b""
    created: int = 0
    revision: int = 0
    version: int = 0
    """How many writes the key has had since it was created; 0 in a deletion."""
    value: bytes = b""
    lease: int = 0


class EtcdEvent(NamedTuple):
    """One write of one key."""

    is_delete: bool
    now: EtcdKeyValue
    before: EtcdKeyValue | None


class EtcdHeader(NamedTuple):
    """Which cluster answered, and its newest revision."""

    cluster: int = 0
    revision: int = 0


class RangeAnswer(NamedTuple):
    """Keys of a range."""

    header: EtcdHeader
    found: list[EtcdKeyValue]
    total: int
    """The keys from the first to the end of the range, whatever the limit."""


class TxnAnswer(NamedTuple):
    """The outcome of a compare-and-swap."""

    header: EtcdHeader
    succeeded: bool
    found: EtcdKeyValue | None
    """After success the written key without its value, or the deleted one with it; else the key
    as it is. None if it does not exist."""


class WatchAnswer(NamedTuple):
    """A part of a watch."""

    header: EtcdHeader
    created: bool
    canceled: bool
    compacted: int
    """The oldest revision that can be read, if the watch was canceled for its age."""
    reason: str
    is_fragment: bool
    """Whether the rest of the answer follows."""
    events: list[EtcdEvent]


class StatusAnswer(NamedTuple):
    """The state of one member."""

    version: str = ""
    size: int = 0
    """Bytes of the database on disk."""
    leader: int = 0
    used: int = 0
    """Bytes of the database that hold data."""
    errors: tuple[str, ...] = ()
    """Alarms, such as `memberID:1 alarm:NOSPACE `."""


def range_request(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    keys_only: bool = False,
    count_only: bool = False,
) -> bytes:
    """Read keys; `end` empty for one key, ALL for every key from the first on."""
    return b"".join(
        (
            bytes_field(1, key),
            bytes_field(2, end) if end else b"",
            varint_field(3, limit) if limit else b"",
            varint_field(4, revision) if revision else b"",
            varint_field(8, 1) if keys_only else b"",
            varint_field(9, 1) if count_only else b"",
        )
    )


def put_if(
    key: bytes,
    value: bytes,
    expect: int,
    lease: int = 0,
    *,
    guard: WriteGuard | None = None,
    fence: tuple[bytes, int] | None = None,
) -> bytes:
    """Write the key if its revision is `expect`, the guard holds, and the key of the fence has its
    revision; else read the key."""
    put = bytes_field(1, key) + bytes_field(2, value) + (varint_field(3, lease) if lease else b"")
    success = [bytes_field(2, put)]
    if expect:
        # The revision of the creation is not in the answer to a put, nor is it known here.
        success.append(bytes_field(1, range_request(key, keys_only=True)))
    return _compare_and(key, expect, success, guard, fence)


def delete_if(key: bytes, expect: int, guard: WriteGuard | None = None) -> bytes:
    """Delete the key if its revision is `expect`, and the guard holds; else read it."""
    delete = bytes_field(1, key) + varint_field(3, 1)
    return _compare_and(key, expect, [bytes_field(3, delete)], guard)


def _compare_and(
    key: bytes,
    expect: int,
    success: list[bytes],
    guard: WriteGuard | None,
    fence: tuple[bytes, int] | None = None,
) -> bytes:
    comparisons = [_compare(key, expect)]
    if guard is not None:
        comparisons.append(_compare(guard.key.encode(), guard.revision))
    if fence is not None:
        comparisons.append(_compare(*fence))
    return b"".join(
        (
            *(bytes_field(1, each) for each in comparisons),
            *(bytes_field(2, each) for each in success),
            bytes_field(3, bytes_field(1, range_request(key))),
        )
    )


def _compare(key: bytes, revision: int) -> bytes:
    return varint_field(2, _MOD) + bytes_field(3, key) + varint_field(6, revision)


def compact_request(revision: int) -> bytes:
    return varint_field(1, revision)


def watch_request(start: int) -> bytes:
    """Watch all keys from a revision on, with the values that writes replace."""
    create = b"".join(
        (
            bytes_field(1, ALL),
            bytes_field(2, ALL),
            varint_field(3, start),
            varint_field(6, 1),
            varint_field(8, 1),
        )
    )
    return bytes_field(1, create)


def lease_request(seconds: int) -> bytes:
    return varint_field(1, seconds)


def authenticate_request(name: str, password: str) -> bytes:
    return bytes_field(1, name.encode()) + bytes_field(2, password.encode())


def read_range(data: bytes) -> RangeAnswer:
    header, found, total = EtcdHeader(), [], 0
    for number, _, value in fields(data):
        if number == 1:
            header = _header(value)
        elif number == 2:
            found.append(_key_value(value))
        elif number == 4:
            total = value
    return RangeAnswer(header, found, total)


def read_txn(data: bytes) -> TxnAnswer:
    header, succeeded, found = EtcdHeader(), False, None
    for number, _, value in fields(data):
        if number == 1:
            header = _header(value)
        elif number == 2:
            succeeded = bool(value)
        elif number == 3:
            found = _operation_key(value) or found
    return TxnAnswer(header, succeeded, found)


def _operation_key(data: bytes) -> EtcdKeyValue | None:
    """Return the key in the answer to one operation of a transaction."""
    for number, _, answer in fields(data):
        # The keys of a range are its field 2, those that were deleted the field 3. A put has none.
        wanted = {1: 2, 3: 3}.get(number)
        for inner, _, value in fields(answer):
            if inner == wanted:
                return _key_value(value)
    return None


def read_header(data: bytes) -> EtcdHeader:
    """Return the header of any answer."""
    for number, _, value in fields(data):
        if number == 1:
            return _header(value)
    return EtcdHeader()


def read_watch(data: bytes) -> WatchAnswer:
    header, created, canceled, compacted = EtcdHeader(), False, False, 0
    reason, is_fragment = "", False
    events: list[EtcdEvent] = []
    for number, _, value in fields(data):
        match number:
            case 1:
                header = _header(value)
            case 3:
                created = bool(value)
            case 4:
                canceled = bool(value)
            case 5:
                compacted = signed(value)
            case 6:
                reason = value.decode(errors="replace")
            case 7:
                is_fragment = bool(value)
            case 11:
                events.append(_event(value))
            case _:
                pass
    return WatchAnswer(header, created, canceled, compacted, reason, is_fragment, events)


def read_lease(data: bytes) -> int:
    """Return the id of a lease that was granted."""
    return next((signed(value) for number, _, value in fields(data) if number == 2), 0)


def read_token(data: bytes) -> str:
    """Return the token of a user who was authenticated."""
    return next((value.decode() for number, _, value in fields(data) if number == 2), "")


def read_status(data: bytes) -> StatusAnswer:
    found = {number: value for number, _, value in fields(data)}
    errors = tuple(value.decode() for number, _, value in fields(data) if number == 8)
    version = found.get(2, b"").decode()
    return StatusAnswer(version, found.get(3, 0), found.get(4, 0), found.get(9, 0), errors)


def _header(data: bytes) -> EtcdHeader:
    found = {number: value for number, _, value in fields(data)}
    return EtcdHeader(found.get(1, 0), signed(found.get(3, 0)))


def _event(data: bytes) -> EtcdEvent:
    is_delete, now, before = False, EtcdKeyValue(), None
    for number, _, value in fields(data):
        if number == 1:
            is_delete = bool(value)
        elif number == 2:
            now = _key_value(value)
        elif number == 3:
            before = _key_value(value)
    return EtcdEvent(is_delete, now, before)


def _key_value(data: bytes) -> EtcdKeyValue:
    found = {number: value for number, _, value in fields(data)}
    return EtcdKeyValue(
        found.get(1, b""),
        found.get(2, 0),
        found.get(3, 0),
        found.get(4, 0),
        found.get(5, b""),
        signed(found.get(6, 0)),
    )
