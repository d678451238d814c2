"""Restart policies: whether a container that has ended is to be started again."""

from kedge.api.core_v1.pod.container import Container, ContainerRestartRule
from kedge.api.core_v1.pod.spec import PodSpec

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def rule_for(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """The first of the container's own rules that speaks about an exit code."""
    for rule in container.restartPolicyRules:
        if rule.exitCodes is None:
            continue
        named = exit_code in rule.exitCodes.values
        if rule.exitCodes.operator == ("In" if named else "NotIn"):
            return rule
    return None


def restarts(spec: PodSpec, container: Container, exit_code: int) -> bool:
    """Whether a container that ended like this runs again: its own word, or the pod's."""
    if container.restartPolicy:
        rule = rule_for(container, exit_code)
        if rule is not None and rule.action in (RESTART, RESTART_ALL):
            return True
    policy = container.restartPolicy or spec.restartPolicy
    return policy not in ("Never", "OnFailure") or (policy == "OnFailure" and exit_code != 0)


def restarts_all(container: Container, exit_code: int) -> bool:
    """Whether a container that ended like this takes all others of the pod with it."""
    rule = rule_for(container, exit_code)
    return rule is not None and rule.action == RESTART_ALL


def survives_failure(spec: PodSpec, container: Container) -> bool:
    """Whether a container that we kill for its health is started again."""
    return (container.restartPolicy or spec.restartPolicy) != "Never"
