"""The outcome of one execution of a probe."""

from enum import StrEnum

import msgspec

from kedge.api.core_v1.pod.container import Container


class ProbeResult(StrEnum):
    """The result of a probe."""

    SUCCESS = "success"
    WARNING = "warning"
    """Success with a warning event."""
    FAILURE = "failure"


class ProbeOutcome(msgspec.Struct, frozen=True):
    """The result of a probe with its output."""

    result: ProbeResult
    output: str = ""


class ProbeError(Exception):
    """The probe could not be executed, which says nothing about the container."""


def port_of(port: int | str, container: Container) -> int:
    """Return the number of a port that may be given by name. Raises ProbeError."""
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
    """Return host and port as one text, with brackets for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
