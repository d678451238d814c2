"""What the supervisor remembers on disk, so that the next one knows what ran."""

import contextlib
import json
import os
from typing import Any, Final

Document = dict[str, Any]

_RECORD: Final = "record.json"
_APART: Final = ("plan", "about", "shared")
_TRASH: Final = "trash"


class Records:
    """Directories of one kind, each with a record in it."""

    def __init__(self, home: str, kind: str) -> None:
        self._home = f"{home}/{kind}"
        self._trash = f"{home}/{_TRASH}"
        for directory in (self._home, self._trash):
            os.makedirs(directory, 0o700, exist_ok=True)

    def directory(self, identity: str) -> str:
        return f"{self._home}/{identity}"

    def make(self, identity: str, *inside: str) -> str:
        """A directory for something new, with some more in it."""
        directory = self.directory(identity)
        os.mkdir(directory, 0o700)
        for name in inside:
            os.mkdir(f"{directory}/{name}", 0o755)
        return directory

    def save(self, record: Document) -> None:
        """Write it whole: whoever reads sees the old one or the new one. What does not change
        later is kept apart, since it is large."""
        directory = self.directory(record["id"])
        for name in _APART:
            if name in record and not os.path.exists(f"{directory}/{name}.json"):
                self.keep(record, name)
        changing = {name: value for name, value in record.items() if name not in _APART}
        _write(f"{directory}/{_RECORD}", changing)

    def keep(self, record: Document, name: str) -> None:
        """Write one of the parts that are kept apart."""
        _write(f"{self.directory(record['id'])}/{name}.json", record[name])

    def load(self) -> list[Document]:
        """All that can be read, the eldest first; what has no record was never finished, and
        goes."""
        found: list[Document] = []
        for identity in os.listdir(self._home):
            try:
                found.append(self._read(self.directory(identity)))
            except (OSError, ValueError):
                self.discard(identity)
        return sorted(found, key=lambda record: int(record["created_at"]))

    def _read(self, directory: str) -> Document:
        with open(f"{directory}/{_RECORD}") as file:
            record: Document = json.load(file)
        for name in _APART:
            with contextlib.suppress(FileNotFoundError), open(f"{directory}/{name}.json") as file:
                record[name] = json.load(file)
        return record

    def discard(self, identity: str) -> None:
        """Out of sight at once; `kedge.supervisor.trees` empties the trash."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.directory(identity), f"{self._trash}/{identity}")

    @property
    def trash(self) -> str:
        return self._trash


def _write(path: str, document: Document) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(f"{path}.new", flags, 0o600)
    try:
        os.write(descriptor, json.dumps(document).encode())
    finally:
        os.close(descriptor)
    os.rename(f"{path}.new", path)
