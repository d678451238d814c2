"""Ranges of user ids for pods with `hostUsers: false`.

A range is allocated once per machine, across all its nodes, and never overlaps ids of the machine's
users. The range of a pod is in a file in the pod's directory, in the kubelet's format; a claim in a
directory that all nodes share names that file. A claim is void without the file, so a node that was
killed or deleted keeps no ranges, and a crash at any point loses none.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery import atomic
from kedge.node.pod.files import PodFiles
from kedge.node.runtime.runtime import Runtime, RuntimeFailure
from kedge.supervisor.sandbox.user_namespace import LENGTH

CLAIMS: Final = Path("/run/kedge/user-namespaces")
KUBELET: Final = "kubelet"
"""The user in /etc/subuid and /etc/subgid whose ids pods use, as upstream."""
_FILE: Final = "userns"
_LOCK: Final = "lock"
_DIGITS: Final = 10
_DEFAULT: Final = (0x7000_0000, 0x8000_0000)
"""Ids that no convention uses: above those of systemd-nspawn, and positive for programs that treat
ids as signed numbers. The range has space for 4,096 pods."""


class IdRange(NamedTuple):
    """Ids from `first` up to but not including `end`."""

    first: int
    end: int

    def overlaps(self, other: "IdRange") -> bool:
        return self.first < other.end and other.first < self.end

    def contains(self, other: "IdRange") -> bool:
        return self.first <= other.first and other.end <= self.end


class InvalidIdRange(ValueError):
    """The files of the machine leave no ids for pods."""


class IdMapping(msgspec.Struct, frozen=True, rename="camel"):
    """A mapping of ids in the kubelet's format."""

    host_id: int
    container_id: int
    length: int


class IdMappings(msgspec.Struct, frozen=True):
    """The content of a pod's file."""

    uid_mappings: Sequence[IdMapping] = msgspec.field(name="uidMappings")
    gid_mappings: Sequence[IdMapping] = msgspec.field(name="gidMappings")


# Possible ranges.


def slots(etc: Path = Path("/etc"), process: Path = Path("/proc/self")) -> list[int]:
    """Return the first ids of all ranges that pods may have. Raises InvalidIdRange."""
    uids = _subordinate(etc / "subuid")
    gids = _subordinate(etc / "subgid")
    if uids.get(KUBELET, []) != gids.get(KUBELET, []):
        raise InvalidIdRange(
            f'{etc}/subuid and {etc}/subgid differ in what they give to "{KUBELET}"'
        )
    whole = _kubelet(uids[KUBELET]) if KUBELET in uids else IdRange(*_DEFAULT)
    taken = [*_others(uids), *_others(gids), *_known(etc / "passwd"), *_known(etc / "group")]
    taken = [each for each in taken if each.overlaps(whole)]
    there = [_mapped(process / name) for name in ("uid_map", "gid_map")]
    ranges = [IdRange(first, first + LENGTH) for first in range(whole.first, whole.end, LENGTH)]
    found = [
        each.first
        for each in ranges
        if not any(each.overlaps(other) for other in taken)
        and all(any(part.contains(each) for part in parts) for parts in there)
    ]
    if not found:
        raise InvalidIdRange(
            f"no ids between {whole.first} and {whole.end - 1} are free on this machine"
        )
    return found


def _kubelet(entries: Sequence[IdRange]) -> IdRange:
    """Return the kubelet's subordinate ids, which must consist of whole ranges, as upstream."""
    if len(entries) != 1:
        raise InvalidIdRange(
            f'"{KUBELET}" must have one range of subordinate ids, not {len(entries)}'
        )
    entry = entries[0]
    if entry.first % LENGTH or (entry.end - entry.first) % LENGTH or entry.first == entry.end:
        raise InvalidIdRange(f'the subordinate ids of "{KUBELET}" are not a multiple of {LENGTH}')
    if entry.first < LENGTH:
        # Mapping 0 would make root of the pod root of the machine.
        raise InvalidIdRange(f'the subordinate ids of "{KUBELET}" must not begin below {LENGTH}')
    return entry


def _subordinate(path: Path) -> dict[str, list[IdRange]]:
    found: dict[str, list[IdRange]] = {}
    for name, first, count in _fields(path, ":", 3):
        if first.isdigit() and count.isdigit():
            ids = IdRange(int(first), int(first) + int(count))
            found.setdefault(name, []).append(ids)
    return found


def _others(subordinate: dict[str, list[IdRange]]) -> Iterator[IdRange]:
    for name, ranges in subordinate.items():
        if name != KUBELET:
            yield from ranges


def _known(path: Path) -> Iterator[IdRange]:
    """Return the ids of the machine's users or groups."""
    for _, _, number in _fields(path, ":", 3):
        if number.isdigit():
            yield IdRange(int(number), int(number) + 1)


def _mapped(path: Path) -> list[IdRange]:
    """Return the ids that exist for this process, which may run in a user namespace itself."""
    return [
        IdRange(int(first), int(first) + int(count)) for first, _, count in _fields(path, None, 3)
    ]


def _fields(path: Path, separator: str | None, count: int) -> Iterator[list[str]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(separator)
        if len(parts) >= count:
            yield parts[:count]


# Allocated ranges.


class UserNamespaces:
    """The id ranges of one node's pods. Fulfils dependencies.UserIdAllocator."""

    def __init__(
        self,
        runtime: Runtime,
        files: PodFiles,
        *,
        claims: Path = CLAIMS,
        available: Callable[[], Sequence[int]] = slots,
    ) -> None:
        self._runtime = runtime
        self._files = files
        self._claims = claims
        self._available = available

    async def ensure(self, pod: Pod) -> int:
        """Return the machine's id of a pod's id 0: 0 for a pod without a user namespace.
        Idempotent, also after a restart of the agent. Raises RuntimeFailure."""
        if pod.spec.hostUsers is not False:
            return 0
        if reason := self._runtime.no_user_namespaces:
            raise RuntimeFailure(
                "can't set `spec.hostUsers: false`, runtime does not support user namespaces: "
                + reason
            )
        try:
            # In a thread, because another node of the machine may hold the lock.
            return await asyncio.to_thread(self._ensure, pod.metadata.uid)
        except (OSError, InvalidIdRange) as error:
            raise RuntimeFailure(f"create user namespace: {error}") from error

    def _ensure(self, uid: str) -> int:
        file = self._file(uid)
        with self._locked() as lock:
            known = _read(file)
            usable = self._available()
            if known in usable and self._claim(known, file):
                return known
            for first in _after(_last(lock), usable):
                if self._claim(first, file):
                    atomic.write(file, _encoded(first))
                    os.pwrite(lock, f"{first:<{_DIGITS}}".encode(), 0)
                    return first
        raise InvalidIdRange("could not find an empty slot to allocate a user namespace")

    async def release(self, uid: str) -> None:
        """Release the ids of a pod whose containers have ended, as the kubelet does. Idempotent."""
        if self._file(uid).exists():
            await asyncio.to_thread(self._release, uid)

    def _release(self, uid: str) -> None:
        file = self._file(uid)
        with contextlib.suppress(OSError), self._locked():
            first = _read(file)
            file.unlink(missing_ok=True)
            if self._holder(first) == file:
                (self._claims / str(first)).unlink(missing_ok=True)

    def _file(self, uid: str) -> Path:
        return self._files.directory(uid).absolute() / _FILE

    def _claim(self, first: int, file: Path) -> bool:
        """Claim a range for the pod with this file, unless another pod has it."""
        holder = self._holder(first)
        if holder is not None and holder != file and _read(holder) == first:
            return False
        if holder != file:
            atomic.write(self._claims / str(first), os.fsencode(file))
        return True

    def _holder(self, first: int) -> Path | None:
        """Return the file that a claim names; it may not exist any more."""
        try:
            return Path(os.fsdecode((self._claims / str(first)).read_bytes()))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock out all other nodes of the machine; the locked file holds the range allocated
        last."""
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._claims / _LOCK, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _last(lock: int) -> int:
    """Return the range that was allocated last on this machine; 0 if none was."""
    text = os.pread(lock, _DIGITS, 0).strip()
    return int(text) if text.isdigit() else 0


def _after(last: int, usable: Sequence[int]) -> list[int]:
    """Return the ranges in the order of allocation: a range just released is the last, because
    files with its ids may still exist."""
    return sorted(usable, key=lambda first: (first <= last, first))


def void_claims(pods: Path, claims: Path = CLAIMS) -> None:
    """Remove the claims of a node without pods."""
    try:
        found = [*claims.glob("[0-9]*")]
    except PermissionError:
        # Root's nodes made the directory. The nodes of other users cannot claim ids.
        return
    for claim in found:
        with contextlib.suppress(OSError):
            if Path(os.fsdecode(claim.read_bytes())).is_relative_to(pods.absolute()):
                claim.unlink()


def _encoded(first: int) -> bytes:
    mapping = IdMapping(host_id=first, container_id=0, length=LENGTH)
    return msgspec.json.encode(IdMappings(uid_mappings=[mapping], gid_mappings=[mapping]))


def _read(file: Path) -> int:
    """Return the machine's id of a pod's id 0, by its file; 0 without a valid file."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=IdMappings)
    except (OSError, msgspec.MsgspecError):
        return 0
    both: Iterable[Sequence[IdMapping]] = (found.uid_mappings, found.gid_mappings)
    starts = {
        each.host_id
        for mappings in both
        for each in mappings
        if len(mappings) == 1 and (each.container_id, each.length) == (0, LENGTH)
    }
    return starts.pop() if len(starts) == 1 else 0
