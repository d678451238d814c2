"""Kubeconfig files: what is put in, taken out or changed, all else being left as it was written.

The file is edited as YAML nodes, not as values, so that every other scalar keeps its spelling.
"""

import base64
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from kedge.machinery import ownership, yaml_text

_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LISTS: Final = ("clusters", "users", "contexts")
LOCK_ATTEMPTS = 1000
"""How often a locked file is tried, a few milliseconds apart; changing a file takes no longer."""
_LOCK_PAUSE: Final = 0.005
_EMPTY: Final = "apiVersion: v1\nkind: Config\n"


class KubeconfigError(Exception):
    """The kubeconfig file cannot be read or changed; it was left as it is."""


class ClusterAccess(NamedTuple):
    """How to reach one cluster; its name is that of the cluster, the user and the context."""

    name: str
    server: str
    ca_pem: bytes
    token: str


class KubeconfigEntry(NamedTuple):
    """A cluster as the file has it."""

    server: str
    ca_pem: bytes
    """Empty if the file itself does not hold it."""


class KubeconfigState(NamedTuple):
    """The state before `merge`, which `remove` restores."""

    context: str
    """The current context, unless it was the merged one already."""
    existed: bool
    """Whether there was a file at all."""


def find(path: Path, name: str) -> KubeconfigEntry | None:
    """The cluster of that name; Unusable if `merge` could make nothing of the file."""
    return _entry(_read(path), name)


def contexts(path: Path) -> list[str]:
    """Return the names of the contexts in a file; raises KubeconfigError."""
    return [_scalar(each, "name") for each in _items(_read(path), "contexts")]


def _entry(config: yaml.MappingNode, name: str) -> KubeconfigEntry | None:
    item = _find(config, "clusters", name)
    body = _get(item, "cluster") if item else None
    if not isinstance(body, yaml.MappingNode):
        return None
    data = _scalar(body, "certificate-authority-data")
    with contextlib.suppress(ValueError):
        return KubeconfigEntry(_scalar(body, "server"), base64.b64decode(data))
    return None


def merge(path: Path, access: ClusterAccess) -> KubeconfigState:
    """Put the cluster into the file and make it the current one."""
    with _locked(path):
        existed = path.exists()
        config = _read(path)
        previous = _scalar(config, "current-context")
        _put(config, "clusters", _cluster(access))
        _put(config, "users", _user(access))
        _put(config, "contexts", _context(access, _find(config, "contexts", access.name)))
        _set(config, "current-context", _text(access.name))
        _write(path, config)
    return KubeconfigState("" if previous == access.name else previous, existed)


def remove(path: Path, name: str, before: KubeconfigState, ca_pem: bytes = b"") -> str:
    """Take the cluster out again, unless the one of that name has another authority by now; returns
    the context that is then the current one.

    If it was the current one, the one before is current again, if that still exists. A file that
    `merge` made and that holds nothing else is removed.
    """
    if not path.exists():
        return ""
    with _locked(path):
        config = _read(path)
        known = _entry(config, name)
        if ca_pem and known and known.ca_pem not in (b"", ca_pem):
            return _scalar(config, "current-context")
        for key in _LISTS:
            _drop(config, key, name)
        current = _scalar(config, "current-context")
        if current == name:
            current = before.context if _find(config, "contexts", before.context) else ""
            _set(config, "current-context", _text(current))
        if not before.existed and _holds_nothing(config):
            _target(path).unlink()
        else:
            _write(path, config)
    return current


def set_namespace(path: Path, context: str, namespace: str) -> None:
    """Have the context of that name mean this namespace where none is named."""
    with _locked(path):
        config = _read(path)
        item = _find(config, "contexts", context)
        body = _get(item, "context") if item else None
        if not isinstance(body, yaml.MappingNode):
            raise KubeconfigError(f'{path} has no context "{context}"')
        _set(body, "namespace", _text(namespace))
        _write(path, config)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file of kubectl and client-go: the process that creates it has the lock."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _create_soon(lock)
    except FileExistsError:
        raise KubeconfigError(
            f"{path} is being changed by another program: try again, or remove {lock} if it was"
            " left behind by a program that crashed"
        ) from None
    except OSError as error:
        raise KubeconfigError(f"cannot change {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _create_soon(lock: Path) -> None:
    """Create the file as soon as it is not there; FileExistsError if that takes too long."""
    for attempts_left in reversed(range(LOCK_ATTEMPTS)):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
            return
        except FileExistsError:
            if not attempts_left:
                raise
            time.sleep(_LOCK_PAUSE)  # noqa: TID251 - no event loop runs here


def _read(path: Path) -> yaml.MappingNode:
    try:
        if path.exists() and not path.is_file():
            raise _malformed(path, "it is not a regular file")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        root = yaml_text.compose(text) or yaml_text.compose(_EMPTY)
    except OSError as error:
        raise KubeconfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml_text.YamlError, UnicodeDecodeError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(root, yaml.MappingNode):
        raise _malformed(path, "it is not a mapping")
    for key in _LISTS:
        _check_list(path, root, key)
    return root


def _check_list(path: Path, root: yaml.MappingNode, key: str) -> None:
    node = _get(root, key)
    if node is None or _is_null(node):
        return
    if not isinstance(node, yaml.SequenceNode):
        raise _malformed(path, f"{key} is not a list")
    if not all(isinstance(item, yaml.MappingNode) for item in node.value):
        raise _malformed(path, f"{key} has an item that is not a mapping")


def _malformed(path: Path, why: str) -> KubeconfigError:
    return KubeconfigError(
        f"{path} is not a kubeconfig file: {why}. Nothing was changed; put the file right, or"
        " choose another with --kubeconfig"
    )


def _write(path: Path, config: yaml.MappingNode) -> None:
    content = yaml.serialize(config, Dumper=_DUMPER, width=2**30, allow_unicode=True).encode()
    try:
        target = _target(path)
        if target.exists() and target.read_bytes() == content:
            # A file that is up to date is not written, so this works on a full disk.
            return
        if target.exists() and not os.access(target, os.W_OK):
            raise KubeconfigError(f"cannot change {path}: it is read-only")
        with _opened(target.parent) as directory:
            _replace(directory, target.name, content)
    except OSError as error:
        raise KubeconfigError(f"cannot change {path}: {error.strerror}") from error


def _target(path: Path) -> Path:
    """Return the file to replace: for a link, its target.

    A link of another user is refused: through it that user could make root, writing into their
    home, replace any file.
    """
    if not path.is_symlink():
        return path
    if path.lstat().st_uid != os.geteuid() or path.parent.stat().st_uid not in (0, os.geteuid()):
        raise KubeconfigError(f"cannot change {path}: it is a link that belongs to another user")
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """Return a descriptor of the directory, since its path may change its meaning between two
    calls."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid in (0, os.geteuid()):
            ownership.check_parents(directory / "file")
        yield descriptor
    except ownership.UntrustedPath as error:
        raise KubeconfigError(f"cannot change a file in {directory}: {error}") from error
    finally:
        os.close(descriptor)


def _replace(directory: int, name: str, content: bytes) -> None:
    """Replace the file atomically; in the directory of another user it stays that user's file."""
    beside = f".{name}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(beside, flags, 0o600, dir_fd=directory), "wb") as file:
            if os.geteuid() == 0:
                owner = _owner(directory, name)
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=directory)
        raise


def _owner(directory: int, name: str) -> os.stat_result:
    """Return the owner of the new file: that of the replaced file, or of the home directory."""
    home = os.fstat(directory)
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return found if home.st_uid in (0, found.st_uid) else home
    return home


def _cluster(access: ClusterAccess) -> yaml.MappingNode:
    certificate = base64.b64encode(access.ca_pem).decode()
    body = {"certificate-authority-data": certificate, "server": access.server}
    return _item(access.name, "cluster", body)


def _user(access: ClusterAccess) -> yaml.MappingNode:
    return _item(access.name, "user", {"token": access.token})


def _context(access: ClusterAccess, known: yaml.MappingNode | None) -> yaml.MappingNode:
    """The context; the namespace that the user may have chosen in it is kept."""
    body = _get(known, "context") if known else None
    namespace = _scalar(body, "namespace") if isinstance(body, yaml.MappingNode) else ""
    chosen = {"namespace": namespace} if namespace else {}
    return _item(access.name, "context", {"cluster": access.name, **chosen, "user": access.name})


def _item(name: str, key: str, body: dict[str, str]) -> yaml.MappingNode:
    inner = _mapping([(_text(key), _text(value)) for key, value in body.items()])
    return _mapping([(_text(key), inner), (_text("name"), _text(name))])


def _mapping(pairs: list[tuple[yaml.Node, yaml.Node]]) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=False)


def _text(value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", value)


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _get(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def _set(mapping: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for i, (name, _) in enumerate(mapping.value):
        if name.value == key:
            mapping.value[i] = (name, value)
            return
    mapping.value.append((_text(key), value))


def _scalar(mapping: yaml.MappingNode, key: str) -> str:
    node = _get(mapping, key)
    return node.value if isinstance(node, yaml.ScalarNode) and not _is_null(node) else ""


def _items(config: yaml.MappingNode, key: str) -> list[yaml.MappingNode]:
    node = _get(config, key)
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _find(config: yaml.MappingNode, key: str, name: str) -> yaml.MappingNode | None:
    return next((item for item in _items(config, key) if _scalar(item, "name") == name), None)


def _put(config: yaml.MappingNode, key: str, item: yaml.MappingNode) -> None:
    """Put the item in the place of its namesake, else at the end."""
    items = _items(config, key)
    name = _scalar(item, "name")
    if name in [_scalar(known, "name") for known in items]:
        changed = [item if _scalar(known, "name") == name else known for known in items]
    else:
        changed = [*items, item]
    _replace_list(config, key, changed)


def _drop(config: yaml.MappingNode, key: str, name: str) -> None:
    items = _items(config, key)
    kept = [item for item in items if _scalar(item, "name") != name]
    if kept != items:
        _replace_list(config, key, kept)


def _replace_list(config: yaml.MappingNode, key: str, items: list[yaml.MappingNode]) -> None:
    known = _get(config, key)
    # An empty list can only be written in flow style, which is no way to write ours.
    flow = bool(known.flow_style) if isinstance(known, yaml.SequenceNode) and known.value else False
    _set(config, key, yaml.SequenceNode("tag:yaml.org,2002:seq", items, flow_style=flow))


def _holds_nothing(config: yaml.MappingNode) -> bool:
    return not any(
        value.value
        for name, value in config.value
        if name.value not in ("apiVersion", "kind") and not _is_null(value)
    )
