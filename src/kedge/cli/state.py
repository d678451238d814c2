"""The directory of one cluster, and what it remembers from one start to the next."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.failure import Failure
from kedge.machinery import atomic

LAYOUT: Final = 1
"""How the directory is arranged; a kedge that arranges it otherwise counts on."""

_LOCK: Final = "change.lock"
_NOT_OURS_TO_MIND: Final = ("lost+found", _LOCK)


class Gone(Failure):
    """The cluster was deleted while it was waited for."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a cluster remembers while it is down: `cluster.json`."""

    layout: int = LAYOUT
    name: str
    port: int = 0
    """Where its server last listened, so that it is found there again; 0 before the first start."""
    kubeconfig: str = ""
    """The file that holds the cluster's context; empty if none does."""
    previous_context: str = ""
    """What was current in that file before."""
    kubeconfig_existed: bool = True
    """Whether that file was there before."""


class Server(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server says of itself once it is ready: `server.json`."""

    pid: int
    url: str
    version: str
    started: datetime
    store: str
    admission: tuple[str, ...]
    upstream_only: bool
    disabled_controllers: tuple[str, ...] = ()


def prepare(state: Path, name: str) -> Cluster:
    """Make the directory a cluster's, or see that it is this cluster's already."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster = read(state)
        if cluster is None:
            _check_empty(state)
            check_outside(state)
            cluster = Cluster(name=name)
            write(state, cluster)
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


def read(state: Path) -> Cluster | None:
    """The cluster that the directory holds, if any."""
    try:
        content = (state / "cluster.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failure(
            f"{state} cannot be read: {error.strerror}. Run kedge as the user whose cluster it is,"
            " or choose another directory with --state"
        ) from error
    try:
        layout = msgspec.json.decode(content, type=dict[str, msgspec.Raw])["layout"]
        if msgspec.json.decode(layout) != LAYOUT:
            raise _unknown_layout(state, bytes(layout).decode())
        return msgspec.json.decode(content, type=Cluster)
    except (msgspec.MsgspecError, KeyError) as error:
        raise _unknown_layout(state, "that cannot be read") from error


def _unknown_layout(state: Path, found: str) -> Failure:
    return Failure(
        f"{state} was arranged by another version of kedge (layout {found}, this one knows layout"
        f" {LAYOUT}): use that version, choose another directory with --state, or remove the"
        " directory to begin anew"
    )


def write(state: Path, cluster: Cluster) -> None:
    """Remember this of the cluster."""
    atomic.write(state / "cluster.json", _encoded(cluster))


def read_server(state: Path) -> Server | None:
    """What the server said when it was last ready."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((state / "server.json").read_bytes(), type=Server)
    return None


def write_server(state: Path, server: Server) -> None:
    """Say that the server is ready, and where."""
    atomic.write(state / "server.json", _encoded(server))


def _encoded(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def authority(state: Path) -> bytes:
    """The certificate that the cluster's server is known by; empty before its first start."""
    with contextlib.suppress(OSError):
        return (state / "pki" / "ca.crt").read_bytes()
    return b""


@contextlib.contextmanager
def changing(state: Path) -> Iterator[None]:
    """Have the cluster to oneself: two commands that start or stop it go one after the other.
    Raises Gone if the one before has deleted it."""
    lock = state / _LOCK
    try:
        held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError as error:
        raise _gone(state) from error
    except OSError as error:
        raise unwritable(state, error) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not _is_still(lock, held):
            raise _gone(state)
        yield
    finally:
        os.close(held)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _gone(state: Path) -> Gone:
    return Gone(f"{state} was deleted by another command at the same moment")


def delete(state: Path) -> None:
    """Delete the directory with all it holds; for who is `changing` it."""
    for entry in list(os.scandir(state)):
        if entry.name not in ("cluster.json", _LOCK):
            _delete_entry(entry)
    # Last, and in this order: until then whoever wants to start it sees a cluster, and waits.
    (state / "cluster.json").unlink(missing_ok=True)
    (state / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state.rmdir()


def _delete_entry(entry: os.DirEntry[str]) -> None:
    # Not above: what starts clusters need not wait for what deletes them.
    import shutil

    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry.path)
