"""AppArmor profiles and SELinux labels that pods request and kedge cannot apply.

The behaviour is upstream's on a machine without the module. AppArmor: the kubelet refuses a pod
with any profile but `Unconfined`. SELinux: the kubelet and the runtimes ignore the label, since
manifests for other machines have one; kedge also records an event. On a machine with SELinux
upstream would enforce the label, so kedge refuses the pod: without the label it would have more
rights than its author expects.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.security import PodSecurityContext, SecurityContext, SELinuxOptions
from kedge.api.core_v1.pod.spec import all_containers
from kedge.node.pod.admission import PodRejection

APP_ARMOR: Final = "AppArmor"
SELINUX: Final = "SELinux"

_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
"""Deprecated, but still used by the kubelet."""
_UNCONFINED: Final = ("Unconfined", "unconfined")
_NO_POD: Final = PodSecurityContext()
_NO_CONTAINER: Final = SecurityContext()


def enabled(kernel: Path = Path("/sys")) -> frozenset[str]:
    """The modules that the machine's kernel enforces."""
    found = set()
    try:
        if (kernel / "module/apparmor/parameters/enabled").read_text().startswith("Y"):
            found.add(APP_ARMOR)
    except OSError:
        pass
    if (kernel / "fs/selinux/enforce").exists():
        found.add(SELINUX)
    return frozenset(found)


def rejection(pod: Pod, modules: Collection[str]) -> PodRejection | None:
    """Return why the node rejects a pod for its profiles or labels; None if it does not."""
    containers = [container for _, container in all_containers(pod.spec)]
    of_pod = (pod.spec.securityContext or _NO_POD).appArmorProfile
    # Also if every container overrides it with Unconfined, as in the kubelet.
    whole_pod = of_pod is not None and of_pod.type not in _UNCONFINED
    if whole_pod or any(wants_app_armor(pod, each) for each in containers):
        why = (
            "this node's runtime does not apply profiles"
            if APP_ARMOR in modules
            else "AppArmor is not enabled on the host"
        )
        return PodRejection(APP_ARMOR, f"Cannot enforce AppArmor: {why}")
    if SELINUX in modules and any(selinux_label(pod, each) for each in containers):
        text = "Cannot enforce SELinux: this node's runtime does not apply labels"
        return PodRejection(SELINUX, text)
    return None


def wants_app_armor(pod: Pod, container: Container) -> bool:
    """Return whether a container requests a profile of any type but Unconfined."""
    of_pod = (pod.spec.securityContext or _NO_POD).appArmorProfile
    own = (container.securityContext or _NO_CONTAINER).appArmorProfile
    noted = pod.metadata.annotations.get(f"{_ANNOTATION}{container.name}")
    if own is not None:
        return own.type not in _UNCONFINED
    if noted is not None:
        return noted not in _UNCONFINED
    return of_pod is not None and of_pod.type not in _UNCONFINED


def selinux_label(pod: Pod, container: Container) -> str:
    """Return the SELinux label that a container requests; empty if it requests none."""
    of_pod = (pod.spec.securityContext or _NO_POD).seLinuxOptions
    own = (container.securityContext or _NO_CONTAINER).seLinuxOptions
    requested = own or of_pod or SELinuxOptions()
    parts = (requested.user, requested.role, requested.type, requested.level)
    return ":".join(parts) if any(parts) else ""
