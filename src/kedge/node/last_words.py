"""Last words: the termination message of a container, from its file or from the end of its log."""

from pathlib import Path
from typing import Final

from kedge.node import marks
from kedge.node.runtime.runtime import Container
from kedge.supervisor.files import beneath

FROM_FILE: Final = 4096
"""Bytes of the file that count: its end."""
FROM_LOG: Final = 2048
"""Bytes of the log's end that count, and lines."""
LINES: Final = 80
_READ: Final = 256 * 1024


def last_words(record: Container, file: Path) -> str:
    """What a container that has ended said about it."""
    falls_back = (
        record.annotations.get(marks.MESSAGE_POLICY) == "FallbackToLogsOnError"
        and record.exit_code != 0
        and record.reason != "StartError"
    )
    said = ""
    if record.annotations.get(marks.MESSAGE_PATH):
        try:
            said = _end_of(file, FROM_FILE).decode(errors="replace")
        except FileNotFoundError:
            said = ""
        except OSError as error:
            return f"Error on reading termination log {file}: {error}"
    if said or not falls_back:
        return said
    try:
        return log_end(_end_of(Path(record.log_path), _READ))
    except OSError as error:
        return f"Error on reading termination message from logs: {error}"


def log_end(data: bytes) -> str:
    """The last lines of a log in CRI's format, without times and streams."""
    pieces: list[bytes] = []
    for line in data.splitlines(keepends=True):
        fields = line.split(b" ", 3)
        if len(fields) < 4:
            continue
        _, _, tag, text = fields
        pieces.append(text if tag == b"F" else text.rstrip(b"\n"))
    # Parts of one long line have no end of line; what counts are whole lines.
    whole = b"".join(pieces).splitlines(keepends=True)
    return b"".join(whole[-LINES:])[-FROM_LOG:].decode(errors="replace")


def _end_of(path: Path, most: int) -> bytes:
    """Read only a regular file, without blocking: a container that shares the machine's files
    could put a FIFO there."""
    with beneath.directory(path.parent) as top, beneath.regular(top, path.name) as file:
        return beneath.ending(file, most)
