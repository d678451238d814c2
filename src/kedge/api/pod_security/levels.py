"""Levels of Pod Security: the policy of a namespace, read from its labels."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kedge.machinery.errors import FieldError

PREFIX: Final = "pod-security.kubernetes.io/"
PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
"""In the order of their strictness."""
MODES: Final = ("enforce", "audit", "warn")
LATEST: Final = "latest"
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)")
_LARGEST: Final = 2**63 - 1


class LevelVersion(NamedTuple):
    """A level as of a minor version of Kubernetes."""

    level: str
    minor: int | None = None
    """None for the latest one."""

    def __str__(self) -> str:
        return f"{self.level}:{LATEST if self.minor is None else f'v1.{self.minor}'}"

    def is_like(self, other: "LevelVersion") -> bool:
        """Whether both allow the same pods."""
        return self == other or self.level == other.level == PRIVILEGED


class PodSecurityPolicy(NamedTuple):
    """The levels of a namespace, by mode."""

    enforce: LevelVersion = LevelVersion(PRIVILEGED)
    audit: LevelVersion = LevelVersion(PRIVILEGED)
    warn: LevelVersion = LevelVersion(PRIVILEGED)

    @property
    def is_privileged(self) -> bool:
        """Whether every pod passes, and nothing is said about it."""
        return all(each.level == PRIVILEGED for each in self)

    def is_like(self, other: "PodSecurityPolicy") -> bool:
        """Whether both have the same effect."""
        return all(mine.is_like(theirs) for mine, theirs in zip(self, other, strict=True))


class PolicyReading(NamedTuple):
    """The policy in labels, and the errors of these labels."""

    policy: PodSecurityPolicy
    errors: tuple[FieldError, ...] = ()


def level_problem(text: str) -> str:
    """Return what is wrong with a level; empty if nothing is."""
    return "" if text in LEVELS else f"must be one of {', '.join(LEVELS)}"


def version_problem(text: str) -> str:
    """Return what is wrong with a version; empty if nothing is."""
    if text == LATEST:
        return ""
    found = _VERSION.fullmatch(text)
    is_known = found is not None and len(text) < 32 and int(found[1]) <= _LARGEST
    return "" if is_known else 'must be "latest" or "v1.x"'


def minor_of(text: str) -> int | None:
    """Return the minor version in a text; None for the latest, and for a bad one."""
    return None if text == LATEST or version_problem(text) else int(text.removeprefix("v1."))


def stricter(one: str, other: str) -> bool:
    """Whether one level is stricter than the other."""
    return LEVELS.index(one) > LEVELS.index(other)


def policy_of(labels: Mapping[str, str], defaults: PodSecurityPolicy) -> PolicyReading:
    """Return the policy of a namespace with these labels.

    A level that cannot be read enforces the strictest one, and audits and warns of nothing.
    """
    errors: list[FieldError] = []
    read = {
        mode: _mode(mode, labels, default, errors)
        for mode, default in zip(MODES, defaults, strict=True)
    }
    enforce, warn = read["enforce"], read["warn"]
    given = labels.get(f"{PREFIX}enforce")
    is_given = given is not None and not level_problem(given)
    if is_given and f"{PREFIX}warn" not in labels and stricter(enforce.level, warn.level):
        has_version = f"{PREFIX}warn-version" in labels
        warn = LevelVersion(enforce.level, warn.minor if has_version else enforce.minor)
    return PolicyReading(PodSecurityPolicy(enforce, read["audit"], warn), tuple(errors))


def _mode(
    mode: str, labels: Mapping[str, str], default: LevelVersion, errors: list[FieldError]
) -> LevelVersion:
    level, minor = default
    if (text := labels.get(f"{PREFIX}{mode}")) is not None:
        level = text
        if problem := level_problem(text):
            errors.append(_error(mode, text, problem))
            level = RESTRICTED if mode == "enforce" else PRIVILEGED
    if (text := labels.get(f"{PREFIX}{mode}-version")) is not None:
        minor = minor_of(text)
        if problem := version_problem(text):
            errors.append(_error(f"{mode}-version", text, problem))
    return LevelVersion(level, minor)


def _error(name: str, text: str, problem: str) -> FieldError:
    return FieldError.invalid(f"metadata.labels[{PREFIX}{name}]", text, problem)
