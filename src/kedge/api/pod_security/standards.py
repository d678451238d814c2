"""Pod Security Standards: the list of checks, and the violations of a pod."""

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.pod_security import baseline, restricted
from kedge.api.pod_security.baseline import unless_user_namespace, unless_windows
from kedge.api.pod_security.levels import BASELINE, PRIVILEGED, RESTRICTED, LevelVersion
from kedge.api.pod_security.wording import Check, PodSecurityViolation


class VersionedCheck(NamedTuple):
    """A check as of each minor version that changed it."""

    level: str
    versions: Mapping[int, Check]
    replaces: str = ""
    """The check of baseline that is not made where this one is."""


STANDARDS: Final[Mapping[str, VersionedCheck]] = {
    "appArmorProfile": VersionedCheck(BASELINE, {0: baseline.app_armor}),
    "capabilities_baseline": VersionedCheck(BASELINE, {0: baseline.capabilities}),
    "hostNamespaces": VersionedCheck(BASELINE, {0: baseline.host_namespaces}),
    "hostPathVolumes": VersionedCheck(BASELINE, {0: baseline.host_path_volumes}),
    "hostPorts": VersionedCheck(BASELINE, {0: baseline.host_ports}),
    "hostProbesAndHostLifecycle": VersionedCheck(BASELINE, {34: baseline.probe_hosts}),
    "privileged": VersionedCheck(BASELINE, {0: baseline.privileged}),
    "procMount": VersionedCheck(
        BASELINE, {0: baseline.proc_mount, 35: unless_user_namespace(baseline.proc_mount)}
    ),
    "seLinuxOptions": VersionedCheck(
        BASELINE,
        {
            0: baseline.selinux(baseline.SELINUX_TYPES),
            31: baseline.selinux(baseline.SELINUX_TYPES_31),
        },
    ),
    "seccompProfile_baseline": VersionedCheck(
        BASELINE, {0: baseline.seccomp_annotations, 19: baseline.seccomp}
    ),
    "sysctls": VersionedCheck(
        BASELINE,
        {
            0: baseline.sysctls(baseline.SYSCTLS),
            27: baseline.sysctls(baseline.SYSCTLS_27),
            29: baseline.sysctls(baseline.SYSCTLS_29),
            32: baseline.sysctls(baseline.SYSCTLS_32),
        },
    ),
    "windowsHostProcess": VersionedCheck(BASELINE, {0: baseline.host_process}),
    "allowPrivilegeEscalation": VersionedCheck(
        RESTRICTED, {8: restricted.escalation, 25: unless_windows(restricted.escalation)}
    ),
    "capabilities_restricted": VersionedCheck(
        RESTRICTED,
        {22: restricted.capabilities, 25: unless_windows(restricted.capabilities)},
        replaces="capabilities_baseline",
    ),
    "procMount_restricted": VersionedCheck(
        RESTRICTED, {35: baseline.proc_mount}, replaces="procMount"
    ),
    "restrictedVolumes": VersionedCheck(
        RESTRICTED, {0: restricted.volumes}, replaces="hostPathVolumes"
    ),
    "runAsNonRoot": VersionedCheck(
        RESTRICTED, {0: restricted.non_root, 35: unless_user_namespace(restricted.non_root)}
    ),
    "runAsUser": VersionedCheck(
        RESTRICTED, {23: restricted.user, 35: unless_user_namespace(restricted.user)}
    ),
    "seccompProfile_restricted": VersionedCheck(
        RESTRICTED,
        {19: restricted.seccomp, 25: unless_windows(restricted.seccomp)},
        replaces="seccompProfile_baseline",
    ),
}
"""In the order of messages: by name, those of baseline first."""

NEWEST: Final = max(minor for check in STANDARDS.values() for minor in check.versions)
"""The minor version after which no check has changed."""


def violations(
    wanted: LevelVersion, annotations: Mapping[str, str], spec: PodSpec
) -> list[PodSecurityViolation]:
    """Return the rules of a level that a pod breaks."""
    if wanted.level == PRIVILEGED:
        return []
    minor = NEWEST if wanted.minor is None else min(wanted.minor, NEWEST)
    found = (check(annotations, spec) for check in _checks(wanted.level, minor))
    return [each for each in found if each is not None]


@cache
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    """Return the checks of a level as of a minor version."""
    chosen = {
        name: newest
        for name, check in STANDARDS.items()
        if (level == RESTRICTED or check.level == BASELINE)
        and (newest := _as_of(check, minor)) is not None
    }
    replaced = {STANDARDS[name].replaces for name in chosen}
    return tuple(check for name, check in chosen.items() if name not in replaced)


def _as_of(check: VersionedCheck, minor: int) -> Check | None:
    since = [each for each in check.versions if each <= minor]
    return check.versions[max(since)] if since else None


def details(found: list[PodSecurityViolation]) -> str:
    """Return the violations of one pod."""
    return ", ".join(map(str, found))


def reasons(found: list[PodSecurityViolation]) -> str:
    """Return the violations of one of several pods, without details."""
    return ", ".join(each.reason for each in found)
