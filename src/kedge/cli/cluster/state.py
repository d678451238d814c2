"""The directory of one cluster, and what it remembers from one start to the next."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.cluster.conversions import FIRST, LAYOUT, converted
from kedge.cli.failure import Failure
from kedge.machinery import atomic, ownership, reserve_files

_LOCK: Final = "change.lock"
_NOT_OURS_TO_MIND: Final = ("lost+found", _LOCK)
_COPIED: Final = ("pki", "token")
"""Copied from the directory of a cluster's first server to that of a further one."""


class ClusterGone(Failure):
    """The cluster was deleted while it was waited for."""


class DamagedState(Failure):
    """Files of the cluster are lost, damaged, or of another version of kedge."""


class RecordDamaged(DamagedState):
    """`cluster.json` is missing or unreadable, but the directory holds a cluster."""

    def __init__(self, state: Path, what: str) -> None:
        super().__init__(
            f"{what}, but {state} holds a cluster: give its name, as in 'kedge up --state {state}"
            " --name NAME', and the file is made again; 'kedge down' with the same flags and"
            " --purge deletes the cluster"
        )
        self.what = what


class UnknownStateLayout(DamagedState):
    """The directory was arranged by a newer version of kedge, or the layout makes no sense."""

    def __init__(self, state: Path, layout: str) -> None:
        super().__init__(
            f"{state} was arranged by another version of kedge (layout {layout}, this one knows"
            f" layouts {FIRST} to {LAYOUT}): nothing was changed. Install the newer version, as"
            " with 'pip install --upgrade kedge', choose another directory with --state, or delete"
            " the cluster with 'kedge down --purge'"
        )
        self.layout = layout


_TYPES: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def irregular(path: Path) -> DamagedState:
    """Return the failure about a file that cannot be one of a cluster."""
    try:
        type_ = _TYPES.get(stat.S_IFMT(path.lstat().st_mode), "of another type")
    except OSError:
        type_ = "gone"
    return DamagedState(
        f"{path} is {type_}, not a regular file: remove it, or put the file back from a copy of the"
        " directory, then run the command again"
    )


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings that a cluster keeps while it is down: `cluster.json`."""

    layout: int = LAYOUT
    """The layout of the directory on disk; the other fields are as in the present layout."""
    name: str
    port: int = 0
    """Where its server last listened, so that it is found there again; 0 before the first start."""
    kubeconfig: str = ""
    """The file that holds the cluster's context; empty if none does."""
    previous_context: str = ""
    """The current context of that file before `kedge up` changed it."""
    kubeconfig_existed: bool = True
    """Whether that file was there before."""
    kept: tuple[str, ...] = ()
    """Files that a server of this cluster has made and that must not be replaced."""
    elsewhere: str = msgspec.field(default="", name="etcd")
    """The setting --store of the last server, if it was the address of another server. The name in
    the file is from the time when that was an etcd."""

    @property
    def has_run(self) -> bool:
        """Whether a server has been ready here: it has recorded its files and its port."""
        return bool(self.kept or self.port)


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The description that a server writes once it is ready: `server.json`."""

    pid: int
    url: str
    version: str
    started: datetime
    store: str
    admission: tuple[str, ...]
    upstream_only: bool
    disabled_controllers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """The flags that make `kedge server` run with the same settings, at the same port."""


def prepare(state: Path, name: str) -> ClusterRecord:
    """Make the directory a cluster's, or see that it is this cluster's already."""
    check_owner(state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Checked again: in a directory like /tmp another user may have created it first.
        check_owner(state)
        cluster = _known(state, name)
        if cluster is None:
            _check_empty(state)
            check_outside(state)
            _hide(state)
            cluster = ClusterRecord(name=name)
            write(state, cluster)
        _hide(state)
    except OSError as error:
        raise unwritable(state, error) from error
    if not os.access(state, os.W_OK | os.X_OK):
        raise unwritable(state, PermissionError(0, "Permission denied"))
    if cluster.name != name:
        raise Failure(
            f'{state} holds the cluster "{cluster.name}", not "{name}": use --name {cluster.name},'
            " or choose another directory with --state"
        )
    return cluster


def check_owner(state: Path) -> None:
    """Fail if other users can change the directory, if it exists, or a directory above it.

    The owner of a cluster's directory can read the administrator's token, and decides which
    processes and control groups `kedge down` kills.
    """
    try:
        ownership.check_directory(state)
    except ownership.UntrustedPath as error:
        raise Failure(
            f"{state} is not used, because {error}, who would then control the cluster: run kedge"
            " as the user whose directory it is, take it away from others with chown and chmod, or"
            " choose another directory with --state"
        ) from error
    except OSError as error:
        raise _unreadable(state, error) from error


def _hide(state: Path) -> None:
    """Remove the access of other users to a directory that kedge did not create."""
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & 0o077:
        state.chmod(mode & 0o700)
        _warn(f"{state} had mode {mode:04o}, and has {mode & 0o700:04o} now: others had access")


def _known(state: Path, name: str) -> ClusterRecord | None:
    """Return the cluster in the directory; a lost or damaged `cluster.json` is recreated."""
    try:
        return read(state)
    except RecordDamaged as damage:
        # Only the port and the earlier current context of the kubeconfig are lost.
        made = ("store.db", "pki/ca.crt", "pki/ca.key", "token")
        cluster = ClusterRecord(
            name=name, kept=tuple(file for file in made if (state / file).exists())
        )
        with contextlib.suppress(FileNotFoundError):
            (state / "cluster.json").replace(state / "cluster.json.damaged")
        write(state, cluster)
        _warn(
            f'{damage.what}: made again for the cluster "{name}"; its port may be another one now'
        )
        return cluster


def _warn(text: str) -> None:
    print(f"warning: {text}.", file=sys.stderr, flush=True)


def unwritable(state: Path, error: OSError) -> Failure:
    """The failure to report when the directory does not take our files."""
    return Failure(
        f"cannot keep the cluster in {state}: {error.strerror}. Make the directory writable, or"
        " choose another with --state"
    )


def _check_empty(state: Path) -> None:
    strange = [
        entry.name
        for entry in state.iterdir()
        if entry.name not in _NOT_OURS_TO_MIND and not entry.name.startswith(".cluster.json.")
    ]
    if sorted(strange) == sorted(_COPIED):
        return
    if strange:
        raise Failure(
            f"{state} is no kedge cluster and is not empty (it holds {sorted(strange)[0]}): choose"
            " a new or an empty directory with --state"
        )


def check_outside(state: Path) -> None:
    """See that the directory is not inside of another cluster's, with which it would be deleted."""
    for above in state.resolve().parents:
        if (above / "cluster.json").exists():
            raise Failure(
                f"{state} is inside of {above}, which is the directory of another cluster: choose"
                " another one with --state"
            )


def read(state: Path) -> ClusterRecord | None:
    """The cluster that the directory holds, if any."""
    check_owner(state)
    path = state / "cluster.json"
    try:
        content = ownership.read(path)
    except (FileNotFoundError, NotADirectoryError):
        if _is_store(state / "store.db") and (state / "pki" / "ca.crt").exists():
            raise RecordDamaged(state, f"{path} is missing") from None
        return None
    except ownership.UntrustedPath as error:
        raise Failure(
            f"{state} is not used, because {error}: remove {path}, and 'kedge up' makes it again"
        ) from error
    except OSError as error:
        raise _unreadable(state, error) from error
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise RecordDamaged(state, f"{path} is damaged ({error})") from error
    layout = (
        document.get("layout", "the layout is missing") if isinstance(document, dict) else "unknown"
    )
    if type(layout) is not int or not FIRST <= layout <= LAYOUT:
        raise UnknownStateLayout(state, str(layout))
    try:
        known = converted(document, layout, lambda file: (state / file).exists())
        return msgspec.convert(known, ClusterRecord)
    except msgspec.ValidationError as error:
        raise RecordDamaged(state, f"{path} is damaged ({error})") from error


def _is_store(path: Path) -> bool:
    """Return whether the file is a kedge store, by SQLite's application id at byte 68."""
    with contextlib.suppress(OSError, ownership.UntrustedPath):
        return ownership.read(path, 72)[68:] == b"kedg"
    return False


def _unreadable(state: Path, error: OSError) -> Failure:
    return Failure(
        f"{state} cannot be read: {error.strerror}. Run kedge as the user whose cluster it is,"
        " or choose another directory with --state"
    )


def write(state: Path, cluster: ClusterRecord) -> None:
    """Remember this of the cluster."""
    path = state / "cluster.json"
    _write(path, _encoded(cluster), needed=not path.exists())


def read_server(state: Path) -> ServerRecord | None:
    """Return the server's record of its last start; None if it cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ownership.UntrustedPath):
        return msgspec.json.decode(ownership.read(state / "server.json"), type=ServerRecord)
    return None


def write_server(state: Path, server: ServerRecord, part: str = "server") -> None:
    """Say that a server is ready, and where."""
    _write(state / f"{part}.json", _encoded(server), needed=False)


def _write(path: Path, content: bytes, *, needed: bool) -> None:
    """Replace the file if its content differs. A full disk is only a warning, unless the file is
    needed."""
    with contextlib.suppress(OSError, ownership.UntrustedPath):
        if ownership.read(path) == content:
            return
    try:
        reserve_files.with_room(path.parent, lambda: atomic.write(path, content))
    except OSError as error:
        if needed or not reserve_files.is_full(error):
            raise
        _warn(f"{path} is not up to date: {error.strerror}")


def _encoded(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def authority(state: Path) -> bytes:
    """The certificate that the cluster's server is known by; empty before its first start."""
    with contextlib.suppress(OSError, ownership.UntrustedPath):
        return ownership.read(state / "pki" / "ca.crt")
    return b""


@contextlib.contextmanager
def changing(state: Path) -> Iterator[None]:
    """Have the cluster to oneself: two commands that start or stop it go one after the other.
    Raises Gone if the one before has deleted it."""
    lock = state / _LOCK
    if os.path.islink(lock):
        raise irregular(lock)
    try:
        held = _open_lock(lock)
    except FileNotFoundError as error:
        raise _gone(state) from error
    except OSError as error:
        raise unwritable(state, error) from error
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode):
            raise irregular(lock)
        fcntl.flock(held, fcntl.LOCK_EX)
        if not _is_still(lock, held):
            raise _gone(state)
        yield
    finally:
        os.close(held)


def _open_lock(lock: Path) -> int:
    # To open a FIFO or a terminal may block for ever, before anybody sees what it is.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        # As the kernel makes it after an error of the disk. To lock takes no right to write, and
        # what runs on such a disk is to be stopped all the same.
        return os.open(lock, os.O_RDONLY | flags)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _gone(state: Path) -> ClusterGone:
    return ClusterGone(f"{state} was deleted by another command at the same moment")


def delete(state: Path) -> None:
    """Delete the directory with all it holds; for who is `changing` it."""
    for entry in list(os.scandir(state)):
        if entry.name not in ("cluster.json", _LOCK):
            _delete_entry(entry)
    # Last, and in this order: until then a command that starts the cluster sees it, and waits.
    (state / "cluster.json").unlink(missing_ok=True)
    (state / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state.rmdir()


def _delete_entry(entry: os.DirEntry[str]) -> None:
    # Not above: what starts clusters need not wait for what deletes them.
    from kedge.supervisor.files.removal import remove_all

    if entry.is_dir(follow_symlinks=False):
        if failure := remove_all(entry.path):
            raise OSError(errno.ENOTEMPTY, failure, entry.path)
    else:
        os.unlink(entry.path)
