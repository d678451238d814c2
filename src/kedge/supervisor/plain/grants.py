"""The capabilities that a container needs from its engine, and how each engine grants them.

Messages, events and documentation use this table.
"""

import json
from typing import Final, NamedTuple


class CapabilityGrant(NamedTuple):
    """A capability that a container may lack."""

    purpose: str
    """The use that a node has for it."""
    security: str = ""
    """The security option that it takes besides."""


GRANTS: Final = {
    "CAP_SYS_ADMIN": CapabilityGrant("namespaces and mounts of containers", "apparmor=unconfined"),
    "CAP_NET_ADMIN": CapabilityGrant("addresses of pods and packet rules of Services"),
    "CAP_SYS_CHROOT": CapabilityGrant("containers of images"),
    "CAP_NET_BIND_SERVICE": CapabilityGrant("ports below 1024, of DNS for example"),
    "CAP_MKNOD": CapabilityGrant("device nodes of containers"),
    "CAP_SETUID": CapabilityGrant("containers of other users"),
    "CAP_SETGID": CapabilityGrant("containers of other groups"),
    "CAP_CHOWN": CapabilityGrant("files of other users"),
    "CAP_SYS_RESOURCE": CapabilityGrant("lower values of oom_score_adj"),
}


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
    security = list(filter(None, (GRANTS[each].security for each in capabilities)))
    options = [f"--cap-add={each}" for each in names]
    gitlab = [f"cap_add = {json.dumps(names)}"]
    kubernetes = [f"capabilities: {{add: {json.dumps(names)}}}"]
    if security:
        options += [f"--security-opt={each}" for each in security]
        gitlab.append(f"security_opt = {json.dumps(security)}")
        kubernetes.append("appArmorProfile: {type: Unconfined}")
    return EngineSettings(" ".join(options), ", ".join(gitlab), ", ".join(kubernetes))


def advice(*capabilities: str) -> str:
    """Return the sentence that names missing capabilities and how to grant them."""
    found = settings(*capabilities)
    return (
        f"this takes {' and '.join(capabilities)}: docker, podman and GitHub Actions"
        f" (container.options): {found.options}; GitLab Runner ([runners.docker]):"
        f" {found.gitlab}; Kubernetes (securityContext): {found.kubernetes}"
    )
