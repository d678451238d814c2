"""The security settings of a container, from its security context, its pod's and its image."""

from collections.abc import Sequence
from pathlib import Path

from kedge.api.core_v1.pod.container import Container, EphemeralContainer
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.security import PodSecurityContext, SeccompProfile, SecurityContext
from kedge.node.pod import security_modules
from kedge.node.pod.dependencies import ConfigFailure, ResolvedImage
from kedge.node.runtime.runtime import ContainerSecurity, PidMode

_NO_POD = PodSecurityContext()
_NO_CONTAINER = SecurityContext()


def container_security(
    pod: Pod, container: Container, image: ResolvedImage, *, profiles: Path, target: str = ""
) -> ContainerSecurity:
    """Return the security settings of a container; `profiles` is the directory of seccomp
    profiles, `target` the target container of an ephemeral container. Raises ConfigFailure for a
    container with runAsNonRoot that would run as root."""
    of_pod = pod.spec.securityContext or _NO_POD
    own = container.securityContext or _NO_CONTAINER
    user = own.runAsUser if own.runAsUser is not None else of_pod.runAsUser
    group = own.runAsGroup if own.runAsGroup is not None else of_pod.runAsGroup
    _check_non_root(pod, container, image, user)
    if security_modules.wants_app_armor(pod, container):
        # Pods are rejected before; this is an ephemeral container.
        raise ConfigFailure("apparmor is not supported")
    privileged = bool(own.privileged)
    capabilities = own.capabilities
    return ContainerSecurity(
        user=user,
        username="" if user is not None else image.user,
        group=group,
        groups=_groups(of_pod),
        merge_image_groups=of_pod.supplementalGroupsPolicy != "Strict",
        privileged=privileged,
        add_capabilities=capabilities.add if capabilities is not None else (),
        drop_capabilities=capabilities.drop if capabilities is not None else (),
        read_only_root=bool(own.readOnlyRootFilesystem),
        no_new_privileges=own.allowPrivilegeEscalation is False,
        seccomp=_seccomp(own.seccompProfile or of_pod.seccompProfile, privileged, profiles),
        selinux_label=security_modules.selinux_label(pod, container),
        # The API refuses it without a user namespace: the container could then write to the
        # machine's /proc/sys.
        unmasked_proc=own.procMount == "Unmasked" and pod.spec.hostUsers is False,
        pid=_pid_mode(pod, container, target),
        pid_target=target,
    )


def _groups(of_pod: PodSecurityContext) -> Sequence[int]:
    extra = [] if of_pod.fsGroup is None else [of_pod.fsGroup]
    return [*of_pod.supplementalGroups, *extra]


def _seccomp(profile: SeccompProfile | None, privileged: bool, profiles: Path) -> str:
    if privileged:
        return "Unconfined"
    if profile is None:
        return "RuntimeDefault"
    if profile.type == "Localhost":
        return str(profiles / (profile.localhostProfile or ""))
    return profile.type


def _pid_mode(pod: Pod, container: Container, target: str) -> PidMode:
    if pod.spec.hostPID:
        return PidMode.HOST
    if pod.spec.shareProcessNamespace:
        return PidMode.POD
    if isinstance(container, EphemeralContainer) and target:
        return PidMode.TARGET
    return PidMode.CONTAINER


def _check_non_root(pod: Pod, container: Container, image: ResolvedImage, user: int | None) -> None:
    own = container.securityContext or _NO_CONTAINER
    of_pod = pod.spec.securityContext or _NO_POD
    non_root = own.runAsNonRoot if own.runAsNonRoot is not None else of_pod.runAsNonRoot
    if not non_root:
        return
    meta = pod.metadata
    where = f'(pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name})'
    if user is not None:
        if user == 0:
            raise ConfigFailure(f"container's runAsUser breaks non-root policy {where}")
        return
    name = image.user.partition(":")[0]
    if name in ("", "0"):
        raise ConfigFailure(f"container has runAsNonRoot and image will run as root {where}")
    if not name.isdigit():
        raise ConfigFailure(
            f"container has runAsNonRoot and image has non-numeric user ({name}), "
            f"cannot verify user is non-root {where}"
        )
