"""Outcome: what one attempt of a probe came to."""

from dataclasses import dataclass
from enum import StrEnum

from kedge.api.core_v1.pod.container import Container


class Result(StrEnum):
    """How it went."""

    SUCCESS = "success"
    WARNING = "warning"
    """It counts as a success, but is worth a remark."""
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went, and what was seen."""

    result: Result
    output: str = ""


class ProbeError(Exception):
    """The probe could not be made, which says nothing about the container."""


def port_of(port: int | str, container: Container) -> int:
    """The number of a port that may be given by name. Raises ProbeError."""
    number = port if isinstance(port, int) else _by_name(port, container)
    if not 0 < number < 65536:
        raise ProbeError(f"invalid port number: {number}")
    return number


def _by_name(name: str, container: Container) -> int:
    for port in container.ports:
        if port.name == name:
            return port.containerPort
    if name.isdecimal():
        return int(name)
    raise ProbeError(f'strconv.Atoi: parsing "{name}": invalid syntax')


def address(host: str, port: int) -> str:
    """Host and port as one word."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
