"""Restart policies: whether a container that has ended is started again."""

from kedge.api.core_v1.pod.container import Container, ContainerRestartRule
from kedge.api.core_v1.pod.spec import PodSpec

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def rule_for(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """Return the first restart rule of the container that matches an exit code."""
    for rule in container.restartPolicyRules:
        if rule.exitCodes is None:
            continue
        named = exit_code in rule.exitCodes.values
        if rule.exitCodes.operator == ("In" if named else "NotIn"):
            return rule
    return None


def restarts(spec: PodSpec, container: Container, exit_code: int) -> bool:
    """Return whether a container with this exit code is started again, by its own policy or the
    pod's."""
    if container.restartPolicy:
        rule = rule_for(container, exit_code)
        if rule is not None and rule.action in (RESTART, RESTART_ALL):
            return True
    policy = container.restartPolicy or spec.restartPolicy
    return policy not in ("Never", "OnFailure") or (policy == "OnFailure" and exit_code != 0)


def restarts_all(container: Container, exit_code: int) -> bool:
    """Return whether a container with this exit code restarts all containers of its pod."""
    rule = rule_for(container, exit_code)
    return rule is not None and rule.action == RESTART_ALL


def survives_failure(spec: PodSpec, container: Container) -> bool:
    """Return whether a container that failed a probe is started again."""
    return (container.restartPolicy or spec.restartPolicy) != "Never"
