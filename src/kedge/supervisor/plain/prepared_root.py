"""The root of a container of an image where the kernel allows no mounts: a copy of the image, with
the volumes put into it.

The process changes its root to the copy. No link leads out of it, so volumes are in it as links of
the file system (files), as copies (directories that are read-only) or as directories that are
merged with the volume (those that are written to).
"""

import contextlib
import os
import stat
from typing import NoReturn

from kedge.supervisor.files import beneath
from kedge.supervisor.files.removal import remove
from kedge.supervisor.kernel import libc
from kedge.supervisor.plain import copies, shared_directories, volumes
from kedge.supervisor.plain.grants import advice
from kedge.supervisor.plain.shared_directories import SharedDirectory
from kedge.supervisor.rootfs import dev, inside, layer_copy
from kedge.supervisor.rootfs.options import Note
from kedge.supervisor.spec import BindMount, ContainerSpec


def make(spec: ContainerSpec, path: str, note: Note) -> None:
    """Make the root, unless the container has it already."""
    if os.path.isdir(path):
        return
    layer_copy.merge(spec["lowers"], path)
    dev.make_standard_nodes(f"{path}/dev")
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A volume that is mounted into another one comes after it.
        binds = sorted(spec["binds"], key=lambda bind: bind["target"].count("/"))
        put = [_put(root, bind, binds, note) for bind in binds]
    finally:
        os.close(root)
    if shared := [each for each in put if each is not None]:
        shared_directories.save(os.path.dirname(path), shared)


def follows(bind: BindMount) -> bool:
    """Return whether a mount is a copy of files that follow objects."""
    return not bind["part"] and os.path.islink(f"{bind['source']}/{copies.DATA}")


def refresh(path: str, binds: list[BindMount]) -> NoReturn:
    """Bring copies of volumes in a root up to date; runs in a child."""
    with contextlib.suppress(OSError):
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for bind in binds:
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_DIRECTORY
                source = os.open(bind["source"], flags | os.O_CLOEXEC)
                copies.refresh(source, libc.open_in(root, bind["target"], flags))
    os._exit(0)


def _put(root: int, bind: BindMount, binds: list[BindMount], note: Note) -> SharedDirectory | None:
    try:
        source = volumes.open_source(bind)
        try:
            if stat.S_ISDIR(os.fstat(source).st_mode):
                return _put_directory(root, bind, binds, source, note)
            _put_file(root, bind, source)
            return None
        finally:
            os.close(source)
    except OSError as error:
        raise volumes.failed_mount(bind, error) from error


def _put_directory(
    root: int, bind: BindMount, binds: list[BindMount], source: int, note: Note
) -> SharedDirectory | None:
    place = inside.directory(root, bind["target"])
    where = os.readlink(f"/proc/self/fd/{place}")
    os.close(place)
    remove(where)
    os.mkdir(where, 0o700)
    target = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    readable = os.open(f"/proc/self/fd/{source}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if bind["read_only"]:
            copies.TreeCopier().copy(readable, target)
            if not follows(bind):
                note(f'"{bind["target"]}" is a copy: this machine allows no mounts')
            return None
        try:
            return shared_directories.fill(bind, binds, readable, target)
        except volumes.MountRefusal as error:
            text = f"{error.strerror}; {advice('CAP_SYS_ADMIN')}"
            raise volumes.MountRefusal(error.errno, text) from error
    finally:
        os.close(readable)
        os.close(target)


def _put_file(root: int, bind: BindMount, source: int) -> None:
    """Link a file, so that both sides see what the other writes; copy it if that is impossible."""
    os.close(inside.file(root, bind["target"]))
    where = inside.find(root, bind["target"])
    assert where is not None
    above, name = os.path.split(os.readlink(f"/proc/self/fd/{where}"))
    os.close(where)
    os.unlink(f"{above}/{name}")
    with beneath.directory(above) as directory:
        if not bind["read_only"]:
            with contextlib.suppress(OSError):
                # Python follows the link of /proc only if there is a directory too.
                os.link(f"/proc/self/fd/{source}", name, dst_dir_fd=directory)
                return
        readable = beneath.open_regular(source)
        try:
            copies.TreeCopier().copy_content(readable, directory, name)
        finally:
            os.close(readable)
