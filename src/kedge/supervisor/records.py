"""Records of sandboxes and containers on disk, from which the next supervisor recovers."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any, Final

from kedge.supervisor.files.spread import spread

Document = dict[str, Any]

_RECORD: Final = "record.jsonl"
_ONCE: Final = ("about", "shared")
_TRASH: Final = "trash"


class Records:
    """Directories of one kind, each with a record: one line per state."""

    def __init__(self, home: str, kind: str) -> None:
        self.home = f"{home}/{kind}"
        self._trash = f"{home}/{_TRASH}"
        for directory in (self.home, self._trash):
            os.makedirs(directory, 0o700, exist_ok=True)
        spread(self.home)

    def directory(self, identity: str) -> str:
        return f"{self.home}/{identity}"

    def make(self, identity: str, *inside: str) -> str:
        """Make the directory of a new object, with subdirectories."""
        directory = self.directory(identity)
        os.mkdir(directory, 0o700)
        for name in inside:
            os.mkdir(f"{directory}/{name}", 0o755)
        return directory

    def save(self, record: Document) -> None:
        """Append the latest state to the record. A line that was not written completely is ignored
        by readers. Large fields that do not change are written once.

        The file is not replaced, because each replacement needs a new inode: after many deletions
        ext4 without a journal scans all recently deleted inodes before it allocates one."""
        with self._opened(record["id"]) as file:
            begun = os.fstat(file).st_size > 0
            changing = {name: value for name, value in record.items() if name not in _ONCE}
            _add(file, changing if begun else record, begun)

    def note(self, record: Document) -> None:
        """Save a state, or skip it on a full disk: the state in memory is authoritative, and the
        next line has the whole state again."""
        # Not logged either: the log is on the same disk.
        with contextlib.suppress(OSError):
            self.save(record)

    def rewrite(self, record: Document) -> None:
        """Replace the whole record by this."""
        path = f"{self.directory(record['id'])}/{_RECORD}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(f"{path}.new", flags, 0o600)
        try:
            _add(descriptor, record, False)
        finally:
            os.close(descriptor)
        os.replace(f"{path}.new", path)

    @contextlib.contextmanager
    def _opened(self, identity: str) -> Iterator[int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(f"{self.directory(identity)}/{_RECORD}", flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def load(self) -> list[Document]:
        """Return all records, the oldest first; directories without a record are discarded."""
        found: list[Document] = []
        for identity in os.listdir(self.home):
            try:
                found.append(self._read(self.directory(identity)))
            except (OSError, ValueError):
                self.discard(identity)
        return sorted(found, key=lambda record: int(record["created_at"]))

    def _read(self, directory: str) -> Document:
        with open(f"{directory}/{_RECORD}") as file:
            first, *rest = file.read().split("\n")
        record: Document = json.loads(first)
        for line in rest:
            with contextlib.suppress(ValueError):
                record.update(json.loads(line))
        return record

    def discard(self, identity: str) -> None:
        """Move the directory to the trash, which is emptied later."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.directory(identity), f"{self._trash}/{identity}")

    @property
    def trash(self) -> str:
        return self._trash


def _add(file: int, document: Document, begun: bool) -> None:
    """Append a line. The line end is written before the next line, so that an incomplete line does
    not damage the next one."""
    line = json.dumps(document).encode()
    os.write(file, b"\n" + line if begun else line)
