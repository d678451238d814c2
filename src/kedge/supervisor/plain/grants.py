"""The capabilities that a container needs from its engine, and how each engine grants them.

Messages, events and documentation use this table.
"""

import errno
import json
import os
import re
from typing import Final, NamedTuple


class CapabilityGrant(NamedTuple):
    """A capability that a container may lack."""

    purpose: str
    """The use that a node has for it."""
    is_confined: bool = False
    """Whether it takes effect only without the default profiles of seccomp and AppArmor."""


GRANTS: Final = {
    # With this capability Docker's seccomp profile allows mounts, but not pivot_root.
    "CAP_SYS_ADMIN": CapabilityGrant("namespaces and mounts of containers", is_confined=True),
    "CAP_NET_ADMIN": CapabilityGrant("addresses of pods and packet rules of Services"),
    "CAP_SYS_CHROOT": CapabilityGrant("containers of images"),
    "CAP_NET_BIND_SERVICE": CapabilityGrant("ports below 1024, of DNS for example"),
    "CAP_MKNOD": CapabilityGrant("device nodes of containers"),
    "CAP_SETUID": CapabilityGrant("containers of other users"),
    "CAP_SETGID": CapabilityGrant("containers of other groups"),
    "CAP_CHOWN": CapabilityGrant("files of other users"),
    "CAP_SYS_RESOURCE": CapabilityGrant("lower values of oom_score_adj"),
    "CAP_SETPCAP": CapabilityGrant("fewer capabilities of containers"),
}
_UNCONFINED: Final = ("seccomp=unconfined", "apparmor=unconfined")
_PROFILES: Final = ("seccompProfile", "appArmorProfile")


OPERATIONS: Final = {
    "oom_score_adj": "CAP_SYS_RESOURCE",
    "its capabilities": "CAP_SETPCAP",
    "mknod": "CAP_MKNOD",
    "device node": "CAP_MKNOD",
    "chroot": "CAP_SYS_CHROOT",
    "setgroups": "CAP_SETGID",
    "setgid": "CAP_SETGID",
    "setuid": "CAP_SETUID",
    "chown": "CAP_CHOWN",
    "owner": "CAP_CHOWN",
    "network": "CAP_NET_ADMIN",
    "nf_tables": "CAP_NET_ADMIN",
    "link": "CAP_NET_ADMIN",
    "route": "CAP_NET_ADMIN",
    **dict.fromkeys(
        # The words of system calls, as the supervisor's errors begin.
        (
            "mount",
            "unmount",
            "open tree",
            "unshare",
            "setns",
            "clone",
            "pivot_root",
            "bpf",
            "seccomp",
        ),
        "CAP_SYS_ADMIN",
    ),
}
"""By the beginning of a word in a message: the capability that the operation takes. The first one
in the message counts; names of files and objects follow it."""
_OPERATION: Final = re.compile(rf"\b(?:{'|'.join(OPERATIONS)})")
_REFUSALS: Final = (
    os.strerror(errno.EPERM).lower(),
    "this machine does not let",
    "this machine allows no mounts",
    "no right to mount",
)
"""The words of messages about operations that the kernel has refused."""


class EngineSettings(NamedTuple):
    """The settings that grant capabilities to the container that kedge runs in."""

    options: str
    """Options of `docker run` and `podman run`, and container.options of GitHub Actions."""
    gitlab: str
    """Lines of the section [runners.docker] of GitLab Runner's config.toml."""
    kubernetes: str
    """Fields of the securityContext of a container."""


def settings(*capabilities: str) -> EngineSettings:
    """Return the settings that grant capabilities."""
    names = [each.removeprefix("CAP_") for each in capabilities]
    is_confined = any(GRANTS[each].is_confined for each in capabilities)
    options = [f"--cap-add={each}" for each in names]
    gitlab = [f"cap_add = {json.dumps(names)}"]
    kubernetes = [f"capabilities: {{add: {json.dumps(names)}}}"]
    if is_confined:
        options += [f"--security-opt={each}" for each in _UNCONFINED]
        gitlab.append(f"security_opt = {json.dumps(_UNCONFINED)}")
        kubernetes += [f"{each}: {{type: Unconfined}}" for each in _PROFILES]
    return EngineSettings(" ".join(options), ", ".join(gitlab), ", ".join(kubernetes))


def advice(*capabilities: str) -> str:
    """Return the sentence that names missing capabilities and how to grant them."""
    found = settings(*capabilities)
    return (
        f"this takes {' and '.join(capabilities)}: docker, podman and GitHub Actions"
        f" (container.options): {found.options}; GitLab Runner ([runners.docker]):"
        f" {found.gitlab}; Kubernetes (securityContext): {found.kubernetes}"
    )


def explained(text: str) -> str:
    """Return a message with advice, if it tells that the kernel has not permitted an operation."""
    words = text.lower()
    if "this takes cap_" in words or not any(each in words for each in _REFUSALS):
        return text
    found = _OPERATION.search(words)
    return f"{text}; {advice(OPERATIONS[found[0]] if found else 'CAP_SYS_ADMIN')}"
