"""The exit status of a remote command: as a Status document, or as text."""

from collections.abc import Sequence
from typing import Any

Status = dict[str, Any]

SUCCESS: Status = {"metadata": {}, "status": "Success"}


def ended(command: Sequence[str], exit_code: int) -> Status:
    """Return the status of a command that has ended."""
    if exit_code == 0:
        return SUCCESS
    shown = f"[{' '.join(command)}]"
    return {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: "
        f"error executing command {shown}, exit code {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


def failed(why: str) -> Status:
    """Return the status of a command that could not run."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def in_words(status: Status) -> str:
    """Return the text for clients of old subprotocols; empty for success."""
    return str(status.get("message", ""))
