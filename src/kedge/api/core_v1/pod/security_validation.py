"""Rules for the security settings of pods and containers."""

import re
from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.pod.security import (
    AppArmorProfile,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    WindowsSecurityContextOptions,
)
from kedge.api.core_v1.pod.spec import PodSpec, all_containers
from kedge.api.internal_forms import internal_form
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_LONGEST_PROFILE: Final = 4095
_SYSCTL_PART: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = rf"({_SYSCTL_PART}[\./])*{_SYSCTL_PART}"
_is_sysctl: Final = re.compile(_SYSCTL).fullmatch
_LONGEST_SYSCTL: Final = 253
_IPC_SYSCTLS: Final = frozenset(
    f"kernel.{name}"
    for name in [
        "sem",
        "shm",
        "shmall",
        "shmmax",
        "shmmni",
        "shm_rmid_forced",
        "msg",
        "msgmax",
        "msgmnb",
        "msgmni",
    ]
)

_has_control: Final = re.compile(r"[\x00-\x1f\x7f]").search
_is_netbios: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_DNS_PART: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_is_dns: Final = re.compile(rf"{_DNS_PART}(?:\.{_DNS_PART})*").fullmatch
_is_blank_user: Final = re.compile("[. ]+").fullmatch
_is_odd_user: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]').search
_KIB: Final = 1024


def validate_security_context(
    context: SecurityContext, *, host_users: bool
) -> Iterator[FieldError]:
    """Everything wrong with a container's settings."""
    yield from _ids(context)
    if context.procMount is not None:
        if context.procMount not in ("Default", "Unmasked"):
            supported = ("Default", "Unmasked")
            yield FieldError.not_supported("procMount", context.procMount, supported)
        if host_users and context.procMount == "Unmasked":
            why = "`hostUsers` must be false to use `Unmasked`"
            yield FieldError.invalid("procMount", context.procMount, why)
    yield from _seccomp(context.seccompProfile)
    if context.allowPrivilegeEscalation is False:
        yield from _no_escalation(context)
    yield from _windows(context.windowsOptions)
    yield from _app_armor(context.appArmorProfile)


def _no_escalation(context: SecurityContext) -> Iterator[FieldError]:
    if context.privileged:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield FieldError.invalid("", internal_form(context, "core.SecurityContext"), why)
    added = context.capabilities.add if context.capabilities is not None else ()
    for _ in filter("CAP_SYS_ADMIN".__eq__, added):
        why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        yield FieldError.invalid("", internal_form(context, "core.SecurityContext"), why)


def validate_pod_security_context(
    context: PodSecurityContext, spec: PodSpec
) -> Iterator[FieldError]:
    """Everything wrong with a pod's settings."""
    if context.fsGroup is not None:
        yield from rules.problems("fsGroup", context.fsGroup, names.user_id(context.fsGroup))
    yield from _ids(context)
    for i, group in enumerate(context.supplementalGroups):
        yield from rules.problems(f"supplementalGroups[{i}]", group, names.user_id(group))
    if spec.shareProcessNamespace and spec.hostPID:
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield FieldError.invalid("shareProcessNamespace", True, why)
    if context.sysctls:
        yield from _sysctls(context, spec)
    yield from _choice("fsGroupChangePolicy", context.fsGroupChangePolicy, "Always OnRootMismatch")
    yield from _seccomp(context.seccompProfile)
    yield from _windows(context.windowsOptions)
    yield from _app_armor(context.appArmorProfile)
    yield from _choice("supplementalGroupsPolicy", context.supplementalGroupsPolicy, "Merge Strict")
    yield from _choice("seLinuxChangePolicy", context.seLinuxChangePolicy, "Recursive")


def _ids(context: SecurityContext | PodSecurityContext) -> Iterator[FieldError]:
    if context.runAsUser is not None:
        yield from rules.problems("runAsUser", context.runAsUser, names.user_id(context.runAsUser))
    if context.runAsGroup is not None:
        found = names.user_id(context.runAsGroup)
        yield from rules.problems("runAsGroup", context.runAsGroup, found)


def _choice(path: str, value: str | None, supported: str) -> Iterator[FieldError]:
    if value is not None and value not in supported.split():
        yield FieldError.not_supported(path, value, supported.split())


def _seccomp(profile: SeccompProfile | None) -> Iterator[FieldError]:
    if profile is None:
        return
    path = "seccompProfile.localhostProfile"
    if not profile.type:
        why = "type is required when seccompProfile is set"
        yield FieldError.required("seccompProfile.type", why)
    elif profile.type not in _PROFILES:
        yield FieldError.not_supported("seccompProfile.type", profile.type, _PROFILES)
    if profile.type == "Localhost":
        if profile.localhostProfile is None:
            yield FieldError.required(path, "must be set when seccomp type is Localhost")
        else:
            yield from path_rules.descending(path, profile.localhostProfile)
    elif profile.localhostProfile is not None:
        why = "can only be set when seccomp type is Localhost"
        yield FieldError.invalid(path, internal_form(profile, "core.SeccompProfile"), why)


def _app_armor(profile: AppArmorProfile | None) -> Iterator[FieldError]:
    if profile is None:
        return
    path, name = "appArmorProfile.localhostProfile", profile.localhostProfile
    if profile.type == "Localhost":
        if name is None or name == "":
            yield FieldError.required(path, "must be set when AppArmor type is Localhost")
        elif name != name.strip():
            yield FieldError.invalid(path, name, "must not be padded with whitespace")
        if len(name or "") > _LONGEST_PROFILE:
            yield FieldError.too_long(path, _LONGEST_PROFILE)
    elif profile.type in _PROFILES:
        if name is not None:
            yield FieldError.invalid(path, name, "can only be set when AppArmor type is Localhost")
    elif not profile.type:
        why = "type is required when appArmorProfile is set"
        yield FieldError.required("appArmorProfile.type", why)
    else:
        yield FieldError.not_supported("appArmorProfile.type", profile.type, _PROFILES)


def _sysctls(context: PodSecurityContext, spec: PodSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, sysctl in enumerate(context.sysctls):
        path, name = f"sysctls[{i}].name", sysctl.name
        if not name:
            yield FieldError.required(path)
        elif len(name) > _LONGEST_SYSCTL or not _is_sysctl(name):
            why = f"must have at most {_LONGEST_SYSCTL} characters and match regex ^{_SYSCTL}$"
            yield FieldError.invalid(path, name, why)
        elif name in seen:
            yield FieldError.duplicate(path, name)
        dotted = name.replace("/", ".")
        if spec.hostNetwork and dotted.startswith("net."):
            why = "may not be specified when 'hostNetwork' is true"
            yield FieldError.invalid(path, name, why)
        elif spec.hostIPC and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            yield FieldError.invalid(path, name, "may not be specified when 'hostIPC' is true")
        seen.add(name)


def _windows(options: WindowsSecurityContextOptions | None) -> Iterator[FieldError]:
    if options is None:
        return
    spec_name, spec = options.gmsaCredentialSpecName, options.gmsaCredentialSpec
    if spec_name is not None:
        path = "windowsOptions.gmsaCredentialSpecName"
        yield from rules.problems(path, spec_name, names.dns_subdomain(spec_name))
    if spec is not None:
        path = "windowsOptions.gmsaCredentialSpec"
        if not spec:
            yield FieldError.invalid(path, spec, "gmsaCredentialSpec cannot be an empty string")
        elif len(spec.encode()) > 64 * _KIB:
            yield FieldError.invalid(path, spec, "gmsaCredentialSpec size must be under 64 KiB")
    user = options.runAsUserName
    if user is not None:
        for problem in _user_problems(user):
            yield FieldError.invalid("windowsOptions.runAsUserName", user, problem)


def _user_problems(name: str) -> Iterator[str]:
    if not name:
        yield "runAsUserName cannot be an empty string"
    elif _has_control(name):
        yield "runAsUserName cannot contain control characters"
    elif name.count("\\") > 1:
        yield "runAsUserName cannot contain more than one backslash"
    else:
        domain, backslash, user = name.rpartition("\\")
        if len(domain) >= 256:
            yield "runAsUserName's Domain length must be under 256 characters"
        if backslash and not (_is_netbios(domain) or _is_dns(domain)):
            yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "runAsUserName's User cannot be empty"
        elif len(user) > 104:
            yield "runAsUserName's User length must not be longer than 104 characters"
        if _is_blank_user(user):
            yield "runAsUserName's User cannot contain only periods or spaces"
        if _is_odd_user(user):
            chars = '"/\\:;|=,+*?<>@[]'
            yield f"runAsUserName's User cannot contain the following characters: {chars}"


_LINUX_ONLY: Final = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)
_PLAIN_FLAGS: Final = ("hostPID", "hostIPC")
_LINUX_ONLY_IN_CONTAINER: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def validate_os(spec: PodSpec) -> Iterator[FieldError]:
    """Everything in a pod that the operating system it names does not know."""
    if spec.os is None:
        return
    if not spec.os.name:
        yield FieldError.required("os.name")
    elif spec.os.name == "linux":
        yield from _linux(spec)
    elif spec.os.name == "windows":
        yield from _windows_pod(spec)
    else:
        yield FieldError.not_supported("os", spec.os.name, ("linux", "windows"))


def _linux(spec: PodSpec) -> Iterator[FieldError]:
    why = "windows options cannot be set for a linux pod"
    if spec.securityContext is not None and spec.securityContext.windowsOptions is not None:
        yield FieldError.forbidden("securityContext.windowsOptions", why)
    for path, container in all_containers(spec):
        context = container.securityContext
        if context is not None and context.windowsOptions is not None:
            yield FieldError.forbidden(f"{path}.securityContext.windowsOptions", why)


def _windows_pod(spec: PodSpec) -> Iterator[FieldError]:
    why = "cannot be set for a windows pod"
    for path in _LINUX_ONLY:
        if _is_set(spec, path):
            yield FieldError.forbidden(path, why)
    for at, container in all_containers(spec):
        for name in _LINUX_ONLY_IN_CONTAINER:
            if _is_set(container, f"securityContext.{name}"):
                yield FieldError.forbidden(f"{at}.securityContext.{name}", why)


def _is_set(part: object, path: str) -> bool:
    value: object = part
    for name in path.split("."):
        value = getattr(value, name, None)
    # False is a choice too, except where it is all that absence can mean.
    return value not in (None, (), []) and (value is not False or path not in _PLAIN_FLAGS)


def validate_host_process(spec: PodSpec) -> Iterator[FieldError]:
    """Windows containers that run on the host: all of them or none, and on its network."""
    own = _host_process(spec.securityContext)
    count = together = 0
    for path, container in all_containers(spec):
        together += 1
        asked = _host_process(container.securityContext)
        if own is not None and asked is not None and own != asked:
            shown = "true" if own else "false"
            why = f"pod hostProcess value must be identical if both are specified, was {shown}"
            at = f"{path}.securityContext.windowsOptions.hostProcess"
            yield FieldError.invalid(at, asked, why)
        count += bool(own if asked is None else asked)
    if not count:
        return
    if count != together:
        why = (
            "If pod contains any hostProcess containers then all containers must be "
            "HostProcess containers"
        )
        yield FieldError.invalid("", "", why)
    if not spec.hostNetwork:
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        yield FieldError.invalid("hostNetwork", False, why)


def _host_process(context: PodSecurityContext | SecurityContext | None) -> bool | None:
    if context is None or context.windowsOptions is None:
        return None
    return context.windowsOptions.hostProcess
