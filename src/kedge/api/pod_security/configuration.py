"""PodSecurityConfiguration: defaults for namespaces without labels, and exemptions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kedge.api.pod_security.levels import (
    LATEST,
    MODES,
    PRIVILEGED,
    LevelVersion,
    PodSecurityPolicy,
    level_problem,
    minor_of,
    version_problem,
)
from kedge.machinery import names
from kedge.machinery.errors import FieldError

KIND: Final = "PodSecurityConfiguration"
GROUP: Final = "pod-security.admission.config.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")


class PodSecurityConfiguration(msgspec.Struct, frozen=True):
    """The defaults of namespaces without labels, and the exemptions."""

    defaults: PodSecurityPolicy = PodSecurityPolicy()
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class PodSecurityDefaults(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Levels and versions by mode, as the file says them."""

    enforce: str = PRIVILEGED
    enforce_version: str = LATEST
    audit: str = PRIVILEGED
    audit_version: str = LATEST
    warn: str = PRIVILEGED
    warn_version: str = LATEST

    def mode(self, mode: str) -> tuple[str, str]:
        """Return level and version of a mode; what is empty has its default."""
        level, version = getattr(self, mode), getattr(self, f"{mode}_version")
        return level or PRIVILEGED, version or LATEST


class PodSecurityExemptions(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Lists of names, as the file says them."""

    usernames: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    runtime_classes: Sequence[str] = ()


class _PodSecurityFile(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    defaults: PodSecurityDefaults = msgspec.field(default_factory=PodSecurityDefaults)
    exemptions: PodSecurityExemptions = msgspec.field(default_factory=PodSecurityExemptions)


def configuration_of(document: Any) -> PodSecurityConfiguration:
    """Return the configuration in a document; ValueError says what is wrong with it."""
    file = msgspec.convert(document, _PodSecurityFile)
    known = [f"{GROUP}/{version}" for version in VERSIONS]
    if file.kind != KIND or file.api_version not in known:
        raise ValueError(f"{file.api_version} {file.kind} is not {KIND} of {', '.join(known)}")
    if errors := [*_errors(file)]:
        raise ValueError(", ".join(map(str, errors)))
    modes = (file.defaults.mode(mode) for mode in MODES)
    exemptions = file.exemptions
    return PodSecurityConfiguration(
        PodSecurityPolicy(*(LevelVersion(level, minor_of(version)) for level, version in modes)),
        frozenset(exemptions.usernames),
        frozenset(exemptions.namespaces),
        frozenset(exemptions.runtime_classes),
    )


def _errors(file: _PodSecurityFile) -> Iterator[FieldError]:
    for mode in ("enforce", "warn", "audit"):
        level, version = file.defaults.mode(mode)
        if problem := level_problem(level):
            yield FieldError.invalid(f"defaults.{mode}", level, problem)
        if problem := version_problem(version):
            yield FieldError.invalid(f"defaults.{mode}-version", version, problem)
    exemptions = file.exemptions
    yield from _name_errors("namespaces", exemptions.namespaces, names.dns_label)
    yield from _name_errors("runtimeClasses", exemptions.runtime_classes, names.dns_subdomain)
    yield from _name_errors("usernames", exemptions.usernames, _user_problems)


def _name_errors(
    field: str, given: Sequence[str], problems_of: Callable[[str], list[str]]
) -> Iterator[FieldError]:
    for index, name in enumerate(given):
        path = f"exemptions.{field}[{index}]"
        if problems := problems_of(name):
            yield FieldError.invalid(path, name, ", ".join(problems))
        elif name in given[:index]:
            yield FieldError.duplicate(path, name)


def _user_problems(name: str) -> list[str]:
    return [] if name else ["username must not be empty"]
