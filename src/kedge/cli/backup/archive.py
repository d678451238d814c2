"""The file that `kedge backup` writes and `kedge restore` reads.

A tarball with `backup.json`, which describes it, the store, the keys and certificates, and the
administrator's token. Data of volumes, images and logs are not in it.
"""

import contextlib
import io
import os
import shutil
import tarfile
from datetime import datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from kedge import __version__
from kedge.cli.cluster import registry, state
from kedge.cli.cluster.conversions import FIRST, LAYOUT
from kedge.cli.cluster.integrity import DATABASE
from kedge.cli.failure import Failure
from kedge.settings.parse import POSTGRESQL
from kedge.settings.postgresql import postgresql_address
from kedge.storage.sqlite.backup import CopyFailure, check_database, copy_database

FORMAT: Final = 1
"""How the file is arranged; a kedge that arranges it otherwise counts on."""
_DESCRIPTION: Final = "backup.json"
_LARGEST_DESCRIPTION: Final = 1 << 20
_FOLDER: Final = "pki"
_WORK: Final = ".backup-"
"""The directory beside the database for its copy, with the pid of the process."""
_SINGLE: Final = (DATABASE, "token")


class BackupDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file `backup.json`."""

    format: int = FORMAT
    name: str
    """The name of the cluster."""
    layout: int
    """How the directory of the cluster was arranged."""
    port: int = 0
    kedge: str = __version__
    made: datetime


def write(directory: Path, target: Path, now: datetime) -> BackupDescription:
    """Back up the cluster in a directory; it may run. Raises Failure."""
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} holds no cluster: 'kedge list' shows those of this machine")
    if cluster.elsewhere:
        raise Failure(
            f'cluster "{cluster.name}" has its objects in {cluster.elsewhere}: back them up with'
            f" {_way(cluster.elsewhere)}, and keep {directory}/pki and {directory}/token with it"
        )
    if not (directory / DATABASE).exists():
        raise Failure(
            f'cluster "{cluster.name}" keeps its objects in memory, or has never run: there is no'
            f" {directory / DATABASE} to back up"
        )
    return pack(directory, cluster, target, now)


def _way(store: str) -> str:
    """Return the command that backs up a store elsewhere."""
    if not store.startswith(POSTGRESQL):
        return '"etcdctl snapshot save FILE"'
    address = postgresql_address(store)
    return f'"pg_dump -Fc -n {address.schema} -f FILE {address.database}", or with the server'


def pack(
    directory: Path, cluster: state.ClusterRecord, target: Path, now: datetime
) -> BackupDescription:
    """Write the files of a cluster to a new file. Raises Failure."""
    described = BackupDescription(
        name=cluster.name, layout=cluster.layout, port=cluster.port, made=now
    )
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    _remove_leftovers(target.parent, f".{target.name}.")
    _remove_leftovers(directory, _WORK)
    try:
        with open(partial, "xb", opener=_private) as out:
            _pack(directory, described, out)
            out.flush()
            os.fsync(out.fileno())
        # A file of that name is a whole backup, or the one that was there before.
        os.link(partial, target)
    except FileExistsError as error:
        raise Failure(f"{target} exists already: choose another file") from error
    except CopyFailure as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return described


def _private(path: str, flags: int) -> int:
    # It has the keys of the cluster.
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _pack(directory: Path, described: BackupDescription, out: IO[bytes]) -> None:
    work = directory / f"{_WORK}{os.getpid()}"
    with (
        contextlib.ExitStack() as stack,
        tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as packed,
    ):
        work.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        entry = tarfile.TarInfo(_DESCRIPTION)
        content = msgspec.json.encode(described)
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
        # Keys first: an object of the store may be signed by them, never the other way round.
        for file in sorted((directory / _FOLDER).rglob("*")):
            if file.is_file() and not file.is_symlink():
                packed.add(file, str(file.relative_to(directory)), recursive=False)
        if (directory / "token").exists():
            packed.add(directory / "token", "token", recursive=False)
        if (directory / DATABASE).exists():
            copy = work / DATABASE
            copy_database(directory / DATABASE, copy)
            packed.add(copy, DATABASE, recursive=False)


def _remove_leftovers(directory: Path, prefix: str) -> None:
    """Remove files and directories that a killed process has left: a prefix and its pid."""
    for path in directory.glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix)
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def describe(path: Path) -> BackupDescription:
    """Return what a backup is of; raises Failure if the file is no backup, or of a newer kedge."""
    try:
        with tarfile.open(path) as packed:
            first = packed.next()
            if first is None or first.name != _DESCRIPTION or first.size > _LARGEST_DESCRIPTION:
                raise Failure(f"{path} is not a backup of kedge")
            content = packed.extractfile(first)
            assert content is not None
            document = msgspec.json.decode(content.read())
            found = document.get("format") if isinstance(document, dict) else None
            if found != FORMAT:
                raise Failure(
                    f"{path} was made by another version of kedge (format {found}, this one knows"
                    f" format {FORMAT}): use that version"
                )
            described = msgspec.convert(document, BackupDescription)
    except OSError as error:
        raise Failure(
            f"{path}: {error.strerror or error}: name a file that 'kedge backup' wrote"
        ) from error
    except (tarfile.TarError, msgspec.MsgspecError, EOFError) as error:
        raise Failure(f"{path} is not a backup of kedge: {error}") from error
    if not FIRST <= described.layout <= LAYOUT:
        raise state.UnknownStateLayout(path, str(described.layout))
    return described


def restore(
    path: Path, described: BackupDescription, *, name: str, directory: Path, root: Path
) -> None:
    """Make a cluster of a backup; raises Failure, and then nothing is left of it."""
    state.check_owner(directory)
    if state.read(directory) is not None or (directory.exists() and any(directory.iterdir())):
        raise Failure(
            f"{directory} is not empty: choose another --name or --state, or delete what is there"
            f" with 'kedge down --name {name} --purge'"
        )
    registry.check_free(root, name, directory)
    prefix = f".{directory.name}.restore-"
    partial = directory.with_name(f"{prefix}{os.getpid()}")
    _remove_leftovers(directory.parent, prefix)
    try:
        partial.mkdir(mode=0o700, parents=True)
        _unpack(path, partial)
        check_database(partial / DATABASE)
        state.write(partial, _record(described, name, partial))
        # An empty directory may be there already; rename(2) replaces it.
        partial.rename(directory)
        registry.register(root, name, directory)
    except (CopyFailure, tarfile.TarError, EOFError) as error:
        raise Failure(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise Failure(f"cannot restore to {directory}: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _record(described: BackupDescription, name: str, directory: Path) -> state.ClusterRecord:
    """Return the record of the restored cluster. Under another name it may run beside the first
    one, so it does not take its port."""
    made = ("pki/ca.crt", "pki/ca.key", DATABASE, "token")
    missing = [each for each in made if not (directory / each).is_file()]
    if missing:
        raise CopyFailure(f"{missing[0]} is missing in it")
    port = described.port if name == described.name else 0
    # The next start converts what an older kedge has backed up.
    return state.ClusterRecord(layout=described.layout, name=name, port=port, kept=made)


def _unpack(path: Path, directory: Path) -> None:
    """Write the files of a backup. Its names are checked: the file may come from anywhere."""
    with tarfile.open(path) as packed:
        for member in packed:
            if member.name == _DESCRIPTION:
                continue
            parts = Path(member.name).parts
            is_known = member.name in _SINGLE or (parts[:1] == (_FOLDER,) and len(parts) > 1)
            if not member.isreg() or ".." in parts or not is_known:
                raise CopyFailure(f"{member.name!r} does not belong in a backup")
            content = packed.extractfile(member)
            assert content is not None
            target = directory / member.name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = 0o644 if member.name.endswith((".crt", ".pub")) else 0o600
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                shutil.copyfileobj(content, file)
