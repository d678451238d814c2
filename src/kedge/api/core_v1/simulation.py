"""Annotations of pods on simulated nodes: delays, failures, usage and logs, without a program.

A name such as `simulation.kedge.dev/run-for` counts for all containers of a pod but init
containers. `simulation.kedge.dev/run-for.NAME` counts for the container NAME alone.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from kedge.api.core_v1.node_types import SIMULATION_PREFIX
from kedge.machinery.durations import SECOND, parse_duration
from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.quantity import Quantity

PREFIX: Final = SIMULATION_PREFIX
NEVER: Final = "never"
RANGE: Final = ".."
LONGEST_SECONDS: Final = 366 * 86400.0
MOST_CORES: Final = 1 << 16
MOST_BYTES: Final = 1 << 50
LONGEST_TEXT: Final = 1024
"""Characters of a message: the status repeats it for each container."""
DEFAULT_PERIOD_SECONDS: Final = 3600.0
KILLED: Final = 137
"""The exit code of a container that the kernel or the node kills."""
OOM_KILLED: Final = "OOMKilled"


class DelayRange(msgspec.Struct, frozen=True):
    """A delay that is the same for all pods, or differs from pod to pod."""

    least: float
    most: float

    def at(self, fraction: float) -> float:
        """Return the delay of a pod; the fraction is between 0 and 1, and the pod's own."""
        return self.least + (self.most - self.least) * fraction


class UsageShape(msgspec.Struct, frozen=True):
    """An amount that is constant, or swings between two values."""

    low: float
    high: float
    period: float = DEFAULT_PERIOD_SECONDS
    """Seconds from one low to the next. The first low is at the start of the container."""

    @property
    def is_constant(self) -> bool:
        return self.low == self.high

    def at(self, age: float) -> float:
        """Return the amount so many seconds after the start."""
        if self.is_constant:
            return self.low
        swing = (1 - math.cos(2 * math.pi * age / self.period)) / 2
        return self.low + (self.high - self.low) * swing


AT_ONCE: Final = DelayRange(0.0, 0.0)
NOTHING: Final = UsageShape(0.0, 0.0)


class ContainerScript(msgspec.Struct, frozen=True):
    """The behaviour of one simulated container."""

    start_delay: DelayRange = AT_ONCE
    ready_delay: DelayRange | None = AT_ONCE
    """After the start; None for a container that is never ready."""
    run_for: DelayRange | None = None
    """From the start to the end; None for one that runs until it is stopped."""
    stop_delay: DelayRange = AT_ONCE
    exit_code: int = 0
    exit_reason: str = ""
    exit_message: str = ""
    image_error: str = ""
    """The message of an image that cannot be pulled; empty if it can."""
    failures: int | None = None
    """How many failures there are before the container runs without; None for no end."""
    cpu: UsageShape = NOTHING
    memory: UsageShape = NOTHING
    logs: str = ""
    ends_well: bool = False
    """Whether a container whose failures are over ends with 0, instead of running on: in a Job."""

    @property
    def fails(self) -> bool:
        """Whether its end is a failure."""
        return self.exit_code != 0

    def after(self, failures: int) -> "ContainerScript":
        """Return the behaviour after so many failures."""
        if self.failures is None or failures < self.failures:
            return self
        if not self.fails:
            return msgspec.structs.replace(self, image_error="")
        return msgspec.structs.replace(
            self,
            image_error="",
            exit_code=0,
            exit_reason="",
            exit_message="",
            run_for=self.run_for if self.ends_well else None,
        )


# The values of annotations.


def _seconds(text: str) -> float:
    seconds = parse_duration(text) / SECOND
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise ValueError("must be between 0s and 366 days")
    return seconds


def _delay(text: str) -> DelayRange:
    least, most = _pair(text, _seconds)
    return DelayRange(least, most)


def _delay_or_never(text: str) -> DelayRange | None:
    return None if text == NEVER else _delay(text)


def _period(text: str) -> float:
    seconds = _seconds(text)
    if seconds < 1:
        raise ValueError("must be at least 1s")
    return seconds


def _pair(text: str, read: Callable[[str], float]) -> tuple[float, float]:
    """Return both ends of a range; a single value is a range too."""
    first, is_range, second = text.partition(RANGE)
    low = read(first.strip())
    high = read(second.strip()) if is_range else low
    if high < low:
        raise ValueError("the range ends before it begins")
    return low, high


def _amount(most: int) -> Callable[[str], UsageShape]:
    def read(text: str) -> float:
        nanos = Quantity.parse(text).nanos
        if not 0 <= nanos <= most * 10**9:
            raise ValueError(f"must be between 0 and {most}")
        return nanos / 1e9

    def shape(text: str) -> UsageShape:
        low, high = _pair(text, read)
        return UsageShape(low, high)

    return shape


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
        if not is_number or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def _word(text: str) -> str:
    if not text.isascii() or not text.isalnum() or not text[0].isalpha():
        raise ValueError("must be one word of letters and digits, such as OOMKilled")
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"must have at most {LONGEST_TEXT} characters")
    return text


_PERIOD: Final = "usage-period"
READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "start-delay": _delay,
    "ready-delay": _delay_or_never,
    "run-for": _delay_or_never,
    "stop-delay": _delay,
    "exit-code": _whole(0, 255),
    "exit-reason": _word,
    "exit-message": _text,
    "image-error": _text,
    "failures": _whole(0, 1_000_000),
    "cpu": _amount(MOST_CORES),
    "memory": _amount(MOST_BYTES),
    _PERIOD: _period,
    "logs": str,
}
"""How the value of each annotation is read; ValueError says what is wrong with it."""
POD_NAMES: Final = tuple(PREFIX + name for name in READERS)
_NODE_DELAYS: Final = tuple(PREFIX + name for name in ("start-delay", "ready-delay", "stop-delay"))
"""Delays of pods that say nothing themselves."""
_NODE_USAGE: Final = tuple(PREFIX + name for name in ("cpu", "memory", _PERIOD))
"""The usage of a node without its pods."""
NODE_NAMES: Final = (*_NODE_DELAYS, *_NODE_USAGE)
"""The annotations that a simulated node may have."""


# Reading.

Annotations = tuple[tuple[str, str], ...]


def own(annotations: Mapping[str, str]) -> Annotations:
    """Return the annotations of simulation, in order."""
    return tuple(sorted(each for each in annotations.items() if each[0].startswith(PREFIX)))


_CACHED_CHARACTERS: Final = 4096
"""Longer annotations are read each time: a cache would keep the texts of pods that are gone."""


def scripts_of(
    of_pod: Annotations, of_node: Annotations, containers: Iterable[tuple[str, bool, bool]]
) -> dict[str, "ContainerScript"]:
    """Return the behaviour of each container, given by name, whether it is an init container, and
    whether it is of a Job. Takes time in proportion to annotations and containers."""
    shared = tuple(each for each in of_pod if each[0] in POD_NAMES)
    own: dict[str, list[tuple[str, str]]] = {}
    for each in of_pod:
        name = each[0].removeprefix(PREFIX).partition(".")[2]
        if name:
            own.setdefault(name, []).append(each)
    is_short = sum(len(text) for _, text in of_pod) <= _CACHED_CHARACTERS
    read = container_script if is_short else container_script.__wrapped__
    plain: dict[tuple[bool, bool], ContainerScript] = {}
    found = {}
    for name, is_initial, is_of_job in containers:
        if name in own or (is_initial, is_of_job) not in plain:
            script = read(
                (*shared, *own.get(name, ())),
                of_node,
                name if name in own else "",
                is_initial=is_initial,
                is_of_job=is_of_job,
            )
            if name not in own:
                plain[is_initial, is_of_job] = script
        else:
            script = plain[is_initial, is_of_job]
        found[name] = script
    return found


@lru_cache(1024)
def container_script(
    of_pod: Annotations, of_node: Annotations, container: str, *, is_initial: bool, is_of_job: bool
) -> ContainerScript:
    """Return the behaviour of a container.

    Init containers end at once, and containers of Jobs after a second, unless their annotations say
    otherwise. Values that are invalid count as missing: a node may have got them before they were
    checked.
    """
    found: dict[str, Any] = {}
    if is_initial:
        found["run-for"] = AT_ONCE
    elif is_of_job:
        found["run-for"] = DelayRange(1.0, 1.0)
    for key, text in of_node:
        if key in _NODE_DELAYS:
            _take(found, key.removeprefix(PREFIX), text)
    for key, text in of_pod:
        if not is_initial and key in POD_NAMES:
            _take(found, key.removeprefix(PREFIX), text)
    for key, text in of_pod:
        field, _, name = key.removeprefix(PREFIX).partition(".")
        if name and name == container:
            _take(found, field, text)
    return msgspec.structs.replace(_script(found), ends_well=is_of_job)


@lru_cache(1024)
def node_usage(of_node: Annotations) -> tuple[UsageShape, UsageShape]:
    """Return the usage of cpu and memory of a node without its pods."""
    found: dict[str, Any] = {}
    for key, text in of_node:
        if key in _NODE_USAGE:
            _take(found, key.removeprefix(PREFIX), text)
    script = _script(found)
    return script.cpu, script.memory


def _take(found: dict[str, Any], name: str, text: str) -> None:
    try:
        found[name] = READERS[name](text)
    except (ValueError, KeyError):
        return


def _script(found: dict[str, Any]) -> ContainerScript:
    period = found.pop(_PERIOD, DEFAULT_PERIOD_SECONDS)
    for name in ("cpu", "memory"):
        if name in found:
            found[name] = msgspec.structs.replace(found[name], period=period)
    if "exit-code" in found or "exit-reason" in found:
        found.setdefault("run-for", AT_ONCE)
    if found.get("exit-reason") == OOM_KILLED:
        found.setdefault("exit-code", KILLED)
    elif "exit-reason" in found:
        found.setdefault("exit-code", 1)
    return ContainerScript(**{name.replace("-", "_"): value for name, value in found.items()})


# Validation.


def validate_pod(
    annotations: Mapping[str, str], containers: Sequence[str], path: str
) -> Iterator[FieldError]:
    """Yield the errors of a pod's annotations of simulation."""
    names = frozenset(containers)
    for key, text in annotations.items():
        if not key.startswith(PREFIX):
            continue
        field, dot, container = key.removeprefix(PREFIX).partition(".")
        at = f"{path}[{key}]"
        if field not in READERS:
            yield _own_error(FieldError.not_supported(at, key, POD_NAMES))
        elif dot and container not in names:
            why = f'the pod has no container "{container}"'
            yield _own_error(FieldError.invalid(at, text, why))
        else:
            yield from _value_errors(field, text, at)


def validate_node(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the errors of a node's annotations of simulation."""
    for key, text in annotations.items():
        if not key.startswith(PREFIX):
            continue
        at = f"{path}[{key}]"
        if key not in NODE_NAMES:
            yield _own_error(FieldError.not_supported(at, key, NODE_NAMES))
        else:
            yield from _value_errors(key.removeprefix(PREFIX), text, at)


def _value_errors(field: str, text: str, at: str) -> Iterator[FieldError]:
    try:
        READERS[field](text)
    except ValueError as error:
        yield _own_error(FieldError.invalid(at, text, str(error)))


def _own_error(error: FieldError) -> FieldError:
    """Return an error that Kubernetes does not have: to it, these are annotations as any other."""
    return error.only(ErrorScope.KEDGE)
