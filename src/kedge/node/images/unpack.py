"""Unpacks a layer's tar file to a directory that an overlay file system can stack on others.

Nothing in the file is trusted: every path in it ends up inside of the directory or is refused.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kedge.node.images import layers
from kedge.node.images.layers import OPAQUE, LayerFile, Parts
from kedge.node.images.oci import InvalidImage
from kedge.node.images.streams import BROKEN, CHUNK, ForwardReader, members
from kedge.supervisor.files.removal import remove_all

if TYPE_CHECKING:
    import tarfile

WHITEOUT: Final = ".wh."
OPAQUE_MARK: Final = ".wh..wh..opq"
_OF_AUFS: Final = ".wh..wh."
"""The prefix of metadata of the first tools (AUFS); it has no meaning any more."""

_MOST_LINKS: Final = 40
_DEEPEST: Final = 256
_FAULTS_OF_THE_FILE: Final = (errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP)
_XATTR: Final = "SCHILY.xattr."
_CAPABILITY: Final = "security.capability"
_ALL_IDS: Final = 0xFFFF_FFFF


class ImageLimits(msgspec.Struct, frozen=True):
    """Limits against images that are made to fill the disk."""

    layer_bytes: int = 16 << 30
    """Bytes of one unpacked layer."""
    entries: int = 2_000_000
    """Files in one layer."""
    document_bytes: int = 8 << 20
    """Bytes of a manifest or a configuration."""


def unpack(tar: ForwardReader, into: Path, below: Sequence[Path], limits: ImageLimits) -> int:
    """Unpack a layer into an empty directory, over the layers `below` it, uppermost first.

    Return its size in bytes. A user other than root owns all files. Devices that the kernel refuses
    are left out, as rootless engines do: containers have a `/dev` of their own.
    """
    import tarfile

    tree = _LayerTree(str(into), [str(each) for each in below], limits)
    tree.begin()
    try:
        _read(tar, tree)
    except InvalidImage:
        raise
    except OSError as error:
        if error.errno is None or error.errno in _FAULTS_OF_THE_FILE:
            raise InvalidImage(f"it is not a tar file that can be read: {error}") from error
        raise
    except (tarfile.TarError, *BROKEN) as error:
        raise InvalidImage(f"it is not a tar file that can be read: {error}") from error
    tree.finish()
    return tree.bytes


def _read(tar: ForwardReader, tree: "_LayerTree") -> None:
    for archive, member in members(tar):
        tree.add(archive, member)


class _LayerTree:
    """The directory of the layer while it is unpacked."""

    def __init__(self, root: str, below: Sequence[str], limits: ImageLimits) -> None:
        self.bytes = 0
        self._root = root
        self._below = below
        self._limits = limits
        self._entries = 0
        self._is_root = os.geteuid() == 0
        self._is_mapped = self._is_root and not _is_root_of_machine()
        self._directories: dict[Parts, Parts] = {}
        """Resolved paths of directories."""
        self._times: dict[str, float] = {}
        self._root_is_opaque = False

    def begin(self) -> None:
        """Create the root of the layer with the attributes of the one below, unless the tar file
        has it."""
        os.chmod(self._root, 0o755)
        if self._below:
            self._dress_like(self._root, LayerFile(self._below[0], os.lstat(self._below[0])))

    def add(self, archive: "tarfile.TarFile", member: "tarfile.TarInfo") -> None:
        self._count(member)
        parts = _parts(member.name)
        if not parts:
            if member.isdir():
                self._dress(self._root, member)
            return
        base = parts[-1]
        if base == OPAQUE_MARK:
            self._hide_all(self._directory(parts[:-1]))
        elif base.startswith(_OF_AUFS):
            return
        elif base.startswith(WHITEOUT):
            self._hide(self._directory(parts[:-1]), _name(base.removeprefix(WHITEOUT), member))
        else:
            self._make(archive, member, (*self._directory(parts[:-1]), base))

    def finish(self) -> None:
        """Apply what must wait until all files exist."""
        if self._root_is_opaque:
            self._hide_below_root()
        if self._is_mapped:
            # The agent, another user, looks for /etc/passwd in it.
            os.chmod(self._root, stat.S_IMODE(os.stat(self._root).st_mode) | 0o711)
        for path, moment in self._times.items():
            _set_time(path, moment)

    def _count(self, member: "tarfile.TarInfo") -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise InvalidImage(
                f"it holds more than the {self._limits.entries} files that are allowed"
            )
        self.bytes += member.size if member.isreg() else 0
        if self.bytes > self._limits.layer_bytes:
            raise InvalidImage(f"it takes more than the {self._limits.layer_bytes} bytes allowed")

    # Paths.

    def _directory(self, parts: Parts) -> Parts:
        """Resolve a path and create it as a directory of this layer; links are followed only
        inside."""
        known = self._directories.get(parts)
        if known is not None:
            return known
        done: list[str] = []
        ahead = list(reversed(parts))
        links = 0
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            target = self._step((*done, part))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise InvalidImage(f"too many symbolic links on the way to {'/'.join(parts)}")
            if target.startswith("/"):
                done.clear()
            ahead.extend(reversed(target.split("/")))
        self._directories[parts] = tuple(done)
        return tuple(done)

    def _step(self, parts: Parts) -> str | None:
        """Return the target of the link at this path; without a link, create a directory and return
        None."""
        path = self._path(parts)
        found = _lstat(path)
        if found is None:
            return self._step_below(parts, path)
        if stat.S_ISDIR(found.st_mode):
            return None
        if stat.S_ISLNK(found.st_mode):
            return os.readlink(path)
        if not layers.is_whiteout(found):
            raise InvalidImage(
                f"{'/'.join(parts)} is a file, and also a directory with files in it"
            )
        os.unlink(path)
        _mkdir(path)
        self._mark_opaque(path)
        return None

    def _step_below(self, parts: Parts, path: str) -> str | None:
        lower = layers.look(self._below, parts)
        if lower and lower.is_link:
            return os.readlink(lower.path)
        _mkdir(path)
        if lower and lower.is_directory:
            self._dress_like(path, lower)
        return None

    def _path(self, parts: Parts) -> str:
        return "/".join((self._root, *parts))

    # Files.

    def _make(self, archive: "tarfile.TarFile", member: "tarfile.TarInfo", parts: Parts) -> None:
        path = self._path(parts)
        if member.isdir():
            self._make_directory(path)
        else:
            # Linked first: a hard link to the file that it replaces is invalid, but must not lose
            # the file.
            target = self._linked(member) if member.islnk() else None
            if target and target.path == path:
                return
            self._clear(path)
            if target:
                self._link(target, path)
                return
            if member.isreg():
                _write(archive, member, path)
            elif member.issym():
                if not member.linkname:
                    raise InvalidImage(f"{member.name} is a symbolic link without a target")
                os.symlink(member.linkname, path)
                self._directories.clear()
            elif member.isfifo():
                os.mkfifo(path, 0o600)
            elif member.ischr() or member.isblk():
                if not self._make_device(member, path):
                    self._leave_out(parts)
                    return
            else:
                raise InvalidImage(f"{member.name} is of a kind that no file system knows")
        self._dress(path, member)

    def _make_directory(self, path: str) -> None:
        found = _lstat(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            return
        self._clear(path)
        _mkdir(path)
        # It may replace a link through which paths were resolved.
        self._directories.clear()
        if found is not None and layers.is_whiteout(found):
            self._mark_opaque(path)

    def _make_device(self, member: "tarfile.TarInfo", path: str) -> bool:
        """Make a device and return True, or return False if this user may not make devices."""
        if member.ischr() and member.devmajor == member.devminor == 0:
            raise InvalidImage(f"{member.name} is a whiteout that is not written as one")
        if not self._is_root or self._is_mapped:
            return False
        kind = stat.S_IFCHR if member.ischr() else stat.S_IFBLK
        try:
            os.mknod(path, kind | 0o600, os.makedev(member.devmajor, member.devminor))
        except PermissionError:
            # A container without CAP_MKNOD.
            return False
        return True

    def _leave_out(self, parts: Parts) -> None:
        """Hide the file of the layers below that a left out one replaces."""
        if layers.look(self._below, parts):
            self._hide(parts[:-1], parts[-1])

    def _linked(self, member: "tarfile.TarInfo") -> LayerFile:
        """Return the target of a hard link, in this layer or in one below."""
        parts = _parts(member.linkname)
        if not parts:
            raise InvalidImage(f"{member.name} is a hard link to nothing")
        where = (*self._directory(parts[:-1]), parts[-1])
        found = layers.look([self._root, *self._below], where)
        if found is None or found.is_directory:
            raise InvalidImage(
                f"{member.name} is a hard link to {member.linkname}, which is no file"
            )
        return found

    def _link(self, target: LayerFile, path: str) -> None:
        if target.path.startswith(f"{self._root}/"):
            os.link(target.path, path, follow_symlinks=False)
        elif target.is_link:
            os.symlink(os.readlink(target.path), path)
        elif stat.S_ISREG(target.status.st_mode):
            # A file of a lower layer belongs to that layer: the link becomes a copy.
            self.bytes += target.status.st_size
            shutil.copyfile(target.path, path, follow_symlinks=False)
            self._dress_like(path, target)
        else:
            raise InvalidImage("it has a hard link to a special file of another layer")

    def _clear(self, path: str) -> None:
        found = _lstat(path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path)
        else:
            remove_tree(Path(path))
        if not stat.S_ISREG(found.st_mode):
            self._directories.clear()

    def _hide(self, directory: Parts, name: str) -> None:
        """Hide a name of the layers below; files of this layer stay."""
        path = self._path((*directory, name))
        found = _lstat(path)
        if found is None:
            _make_whiteout(path)
        elif stat.S_ISDIR(found.st_mode):
            self._mark_opaque(path)

    def _hide_all(self, directory: Parts) -> None:
        if directory:
            self._mark_opaque(self._path(directory))
        else:
            self._root_is_opaque = True

    def _hide_below_root(self) -> None:
        # Overlay file systems do not check whether the root of a layer is opaque.
        for name in layers.children(self._below, ()):
            self._hide((), name)

    def _mark_opaque(self, path: str) -> None:
        for name in OPAQUE if self._is_root else OPAQUE[1:]:
            try:
                os.setxattr(path, name, b"y", follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP):
                    raise
            else:
                return
        raise InvalidImage(
            "it hides files of the layers below, which the file system of the state directory"
            " cannot remember: it has no extended attributes"
        )

    # Attributes.

    def _dress(self, path: str, member: "tarfile.TarInfo") -> None:
        """Set owner, extended attributes, mode and time, in this order: chown clears mode bits."""
        if self._is_root:
            self._own(path, member.uid, member.gid)
        if member.isreg() or member.isdir():
            self._set_attributes(path, member.pax_headers)
        if not member.issym():
            os.chmod(path, self._mode(member.mode, directory=member.isdir()))
        if member.isdir():
            self._times[path] = member.mtime
        else:
            _set_time(path, member.mtime)

    def _dress_like(self, path: str, other: LayerFile) -> None:
        status = other.status
        if self._is_root:
            self._own(path, status.st_uid, status.st_gid)
        os.chmod(path, self._mode(stat.S_IMODE(status.st_mode), directory=other.is_directory))
        if other.is_directory:
            self._times[path] = status.st_mtime
        else:
            _set_time(path, status.st_mtime)

    def _own(self, path: str, user: int, group: int) -> None:
        try:
            os.chown(path, user, group, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_mapped:
                raise
            # The user namespace lacks the id. The file belongs to root, as without subordinate ids.
            os.chown(path, 0, 0, follow_symlinks=False)

    def _mode(self, mode: int, *, directory: bool) -> int:
        """Return the mode with the rights that a user other than root needs to read and remove the
        file."""
        mine = 0 if self._is_root else 0o700 if directory else 0o400
        return stat.S_IMODE(mode) | mine

    def _set_attributes(self, path: str, headers: Mapping[str, str]) -> None:
        for header, value in headers.items():
            name = header.removeprefix(_XATTR)
            # Attributes of overlay itself could redirect lookups.
            is_user = name.startswith("user.") and not name.startswith("user.overlay.")
            if name == header or not (is_user or (name == _CAPABILITY and self._is_root)):
                continue
            with contextlib.suppress(OSError):
                os.setxattr(path, name, value.encode(errors="surrogateescape"))


def _parts(name: str) -> Parts:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name:
        raise InvalidImage(f"{name!r} would lie outside of the image")
    if len(parts) > _DEEPEST:
        raise InvalidImage(f"it holds directories more than {_DEEPEST} deep")
    return parts


def _name(name: str, member: "tarfile.TarInfo") -> str:
    if name in ("", ".", ".."):
        raise InvalidImage(f"{member.name!r} hides something outside of the image")
    return name


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_root_of_machine() -> bool:
    from kedge.supervisor import subordinate_ids

    with open("/proc/self/uid_map") as file:
        return subordinate_ids.count(file.read()) == _ALL_IDS


def _mkdir(path: str) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)


def _write(archive: "tarfile.TarFile", member: "tarfile.TarInfo", path: str) -> None:
    content = archive.extractfile(member)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        if content is not None:
            shutil.copyfileobj(content, file, CHUNK)
        if os.fstat(file.fileno()).st_size != member.size:
            raise InvalidImage(f"{member.name} ends too early")


def _set_time(path: str, moment: float) -> None:
    # The file is gone, or the file system does not support the time; neither matters.
    with contextlib.suppress(OSError, OverflowError, ValueError):
        os.utime(path, (moment, moment), follow_symlinks=False)


def _make_whiteout(path: str) -> None:
    try:
        # The only device that every user may create, since Linux 5.8.
        os.mknod(path, stat.S_IFCHR | 0o600, 0)
    except PermissionError:
        raise InvalidImage(
            "it removes files of the layers below, which this kernel lets only root write down"
        ) from None


def remove_tree(path: Path) -> None:
    """Delete a directory with its content, if it exists."""
    if failure := remove_all(path):
        raise OSError(errno.ENOTEMPTY, failure, str(path))
