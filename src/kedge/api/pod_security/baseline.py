"""The checks of the level baseline."""

from collections.abc import Iterator, Mapping
from typing import Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import HTTPGetAction, TCPSocketAction
from kedge.api.core_v1.pod.security import PodSecurityContext, SecurityContext, SELinuxOptions
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.pod_security.wording import (
    Check,
    PodSecurityViolation,
    containers_of,
    number,
    of_containers,
    quoted_list,
    setters,
)
from kedge.machinery.errors import quoted

Annotations = Mapping[str, str]

_ADDABLE: Final = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_APPARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
SELINUX_TYPES: Final = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
SELINUX_TYPES_31: Final = SELINUX_TYPES | {"container_engine_t"}
SYSCTLS: Final = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    )
)
SYSCTLS_27: Final = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_29: Final = SYSCTLS_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_32: Final = SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def app_armor(annotations: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid to switch AppArmor off, by field or by annotation."""
    of_pod = _bad_app_armor(spec.securityContext)
    of_each = {each.name: _bad_app_armor(each.securityContext) for each in containers_of(spec)}
    names = [name for name, value in of_each.items() if value is not None]
    values = sorted({value for value in (of_pod, *of_each.values()) if value is not None})
    noted = sorted(
        f"{key}={quoted(value)}"
        for key, value in annotations.items()
        if key.startswith(_APPARMOR_PREFIX)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    by_field = setters(of_pod is not None, names)
    who = [by_field] if by_field else []
    if noted:
        who.append(number(len(noted), "annotation", "annotations"))
    if not who:
        return None
    values += noted
    reason = number(len(values), "forbidden AppArmor profile", "forbidden AppArmor profiles")
    what = f"must not set AppArmor profile type to {quoted_list(values)}"
    return PodSecurityViolation(reason, f"{' and '.join(who)} {what}")


def _bad_app_armor(context: PodSecurityContext | SecurityContext | None) -> str | None:
    profile = context.appArmorProfile if context else None
    return profile.type if profile and profile.type not in _PROFILES else None


def capabilities(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Allow only capabilities to be added that containers usually have."""
    names, added = added_capabilities(spec, _ADDABLE)
    if not names:
        return None
    what = f"must not include {quoted_list(added)} in securityContext.capabilities.add"
    return PodSecurityViolation("non-default capabilities", f"{of_containers(names)} {what}")


def added_capabilities(spec: PodSpec, allowed: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the containers that add capabilities which are not allowed, and these."""
    names, added = [], set()
    for each in containers_of(spec):
        given = each.securityContext.capabilities if each.securityContext else None
        if given and (more := {*given.add} - allowed):
            names.append(each.name)
            added |= more
    return names, sorted(added)


def host_namespaces(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid the namespaces of the node."""
    shared = [
        f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if getattr(spec, name)
    ]
    return PodSecurityViolation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid volumes that are directories of the node."""
    names = [volume.name for volume in spec.volumes if volume.hostPath is not None]
    if not names:
        return None
    detail = f"{number(len(names), 'volume', 'volumes')} {quoted_list(names)}"
    return PodSecurityViolation("hostPath volumes", detail)


def host_ports(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid ports of the node."""
    used = {
        each.name: {str(p.hostPort) for p in each.ports if p.hostPort}
        for each in containers_of(spec)
    }
    names = [name for name, ports in used.items() if ports]
    if not names:
        return None
    ports = sorted(set().union(*used.values()))
    verb, noun = number(len(names), "uses", "use"), number(len(ports), "hostPort", "hostPorts")
    return PodSecurityViolation(
        "hostPort", f"{of_containers(names)} {verb} {noun} {', '.join(ports)}"
    )


def probe_hosts(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid probes and hooks that make the node connect to other hosts than the pod."""
    used = {each.name: {*_probe_hosts(each)} for each in containers_of(spec)}
    names = sorted(name for name, hosts in used.items() if hosts)
    if not names:
        return None
    hosts = sorted(set().union(*used.values()))
    noun = number(len(hosts), "probe or lifecycle host", "probe or lifecycle hosts")
    verb = number(len(names), "uses", "use")
    detail = f"{of_containers(names)} {verb} {noun} {quoted_list(hosts)}"
    return PodSecurityViolation("probe or lifecycle host", detail)


def _probe_hosts(container: Container) -> Iterator[str]:
    hooks = container.lifecycle
    for handler in (
        container.livenessProbe,
        container.readinessProbe,
        container.startupProbe,
        hooks and hooks.postStart,
        hooks and hooks.preStop,
    ):
        if handler:
            yield from _hosts(handler.httpGet, handler.tcpSocket)


def _hosts(http: HTTPGetAction | None, tcp: TCPSocketAction | None) -> Iterator[str]:
    if http and http.host:
        yield http.host
    if tcp and tcp.host:
        yield tcp.host


def privileged(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid privileged containers."""
    names = [
        each.name
        for each in containers_of(spec)
        if each.securityContext and each.securityContext.privileged
    ]
    if not names:
        return None
    what = "must not set securityContext.privileged=true"
    return PodSecurityViolation("privileged", f"{of_containers(names)} {what}")


def proc_mount(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid /proc without masks."""
    found = {
        each.name: kind
        for each in containers_of(spec)
        if each.securityContext
        and (kind := each.securityContext.procMount) is not None
        and kind != "Default"
    }
    if not found:
        return None
    values = quoted_list(sorted({*found.values()}))
    what = f"must not set securityContext.procMount to {values}"
    return PodSecurityViolation("procMount", f"{of_containers([*found])} {what}")


def unless_user_namespace(check: Check) -> Check:
    """Return a check that passes pods whose root user is not the node's."""

    def checked(annotations: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
        return None if spec.hostUsers is False else check(annotations, spec)

    return checked


def selinux(types: frozenset[str]) -> Check:
    """Return a check that allows these SELinux types, and no user or role."""

    def checked(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
        options = _selinux_options(spec)
        bad = {name: each for name, each in options.items() if not _is_allowed(each, types)}
        if not bad:
            return None
        wrong = sorted({each.type for each in bad.values()} - types)
        data = [f"{number(len(wrong), 'type', 'types')} {quoted_list(wrong)}"] if wrong else []
        for part in ("user", "role"):
            if any(getattr(each, part) for each in bad.values()):
                data.append(f"{part} may not be set")
        who = setters("" in bad, [name for name in bad if name])
        what = f"set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
        return PodSecurityViolation("seLinuxOptions", f"{who} {what}")

    return checked


def _selinux_options(spec: PodSpec) -> dict[str, SELinuxOptions]:
    """Return the options by container; those of the pod under an empty name."""
    contexts: dict[str, PodSecurityContext | SecurityContext | None] = {"": spec.securityContext}
    contexts |= {each.name: each.securityContext for each in containers_of(spec)}
    return {
        name: context.seLinuxOptions
        for name, context in contexts.items()
        if context and context.seLinuxOptions
    }


def _is_allowed(options: SELinuxOptions, types: frozenset[str]) -> bool:
    return options.type in types and not options.user and not options.role


def seccomp_annotations(annotations: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid to switch seccomp off by annotation, as before version 1.19."""
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{each.name}" for each in containers_of(spec))]
    bad = sorted(
        {
            f"{key}={quoted(annotations[key])}"
            for key in keys
            if key in annotations and not _is_seccomp(annotations[key])
        }
    )
    if not bad:
        return None
    noun = number(len(bad), "annotation", "annotations")
    return PodSecurityViolation("seccompProfile", f"forbidden {noun} {', '.join(bad)}")


def _is_seccomp(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def seccomp(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid to switch seccomp off by field."""
    context = spec.securityContext
    of_pod = _bad_seccomp(context)
    of_each = {each.name: _bad_seccomp(each.securityContext) for each in containers_of(spec)}
    names = [name for name, value in of_each.items() if value is not None]
    if of_pod is None and not names:
        return None
    values = sorted({value for value in (of_pod, *of_each.values()) if value is not None})
    what = f"must not set securityContext.seccompProfile.type to {quoted_list(values)}"
    return PodSecurityViolation("seccompProfile", f"{setters(of_pod is not None, names)} {what}")


def _bad_seccomp(context: PodSecurityContext | SecurityContext | None) -> str | None:
    profile = context.seccompProfile if context else None
    return profile.type if profile and profile.type not in _PROFILES else None


def sysctls(allowed: frozenset[str]) -> Check:
    """Return a check that allows these kernel parameters."""

    def checked(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
        given = spec.securityContext.sysctls if spec.securityContext else ()
        bad = [each.name for each in given if each.name not in allowed]
        return PodSecurityViolation("forbidden sysctls", ", ".join(bad)) if bad else None

    return checked


def host_process(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid Windows containers that are processes of the node."""
    names = [each.name for each in containers_of(spec) if _is_host_process(each.securityContext)]
    who = setters(_is_host_process(spec.securityContext), names)
    if not who:
        return None
    what = "must not set securityContext.windowsOptions.hostProcess=true"
    return PodSecurityViolation("hostProcess", f"{who} {what}")


def _is_host_process(context: PodSecurityContext | SecurityContext | None) -> bool:
    return bool(context and context.windowsOptions and context.windowsOptions.hostProcess)


def unless_windows(check: Check) -> Check:
    """Return a check that passes pods for Windows."""

    def checked(annotations: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
        is_windows = spec.os is not None and spec.os.name == "windows"
        return None if is_windows else check(annotations, spec)

    return checked
