"""The termination message of a container, from its file or from the end of its log."""

from pathlib import Path
from typing import Final

from kedge.node.pod import labels
from kedge.node.runtime.runtime import RuntimeContainer
from kedge.supervisor.files import beneath

FROM_FILE: Final = 4096
"""Bytes that are read from the end of the file."""
FROM_LOG: Final = 2048
"""Bytes and lines that are used from the end of the log."""
LINES: Final = 80
_READ: Final = 256 * 1024


def termination_message(record: RuntimeContainer, file: Path) -> str:
    """Return the termination message of a container that has ended."""
    falls_back = (
        record.annotations.get(labels.MESSAGE_POLICY) == "FallbackToLogsOnError"
        and record.exit_code != 0
        and record.reason != "StartError"
    )
    message = ""
    if record.annotations.get(labels.MESSAGE_PATH):
        try:
            message = _end_of(file, FROM_FILE).decode(errors="replace")
        except FileNotFoundError:
            message = ""
        except OSError as error:
            return f"Error on reading termination log {file}: {error}"
    if message or not falls_back:
        return message
    try:
        return log_end(_end_of(Path(record.log_path), _READ))
    except OSError as error:
        return f"Error on reading termination message from logs: {error}"


def log_end(data: bytes) -> str:
    """Return the last lines of a log in CRI format, without timestamps and stream names."""
    pieces: list[bytes] = []
    for line in data.splitlines(keepends=True):
        fields = line.split(b" ", 3)
        if len(fields) < 4:
            continue
        _, _, tag, text = fields
        pieces.append(text if tag == b"F" else text.rstrip(b"\n"))
    # A partial line has no newline: the parts of one long line count as one line.
    whole = b"".join(pieces).splitlines(keepends=True)
    return b"".join(whole[-LINES:])[-FROM_LOG:].decode(errors="replace")


def _end_of(path: Path, most: int) -> bytes:
    """Read only a regular file, without blocking: a container that shares the machine's files
    could put a FIFO there."""
    with beneath.directory(path.parent) as top, beneath.regular(top, path.name) as file:
        return beneath.ending(file, most)
