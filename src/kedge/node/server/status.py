"""How the end of a remote command is told to its client: as a Status document, or in words."""

from collections.abc import Sequence
from typing import Any

Status = dict[str, Any]

SUCCESS: Status = {"metadata": {}, "status": "Success"}


def ended(command: Sequence[str], exit_code: int) -> Status:
    """A command has run to its end."""
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
    """It could not be done at all."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def in_words(status: Status) -> str:
    """What clients are told that are too old for documents: nothing, if all went well."""
    return str(status.get("message", ""))
