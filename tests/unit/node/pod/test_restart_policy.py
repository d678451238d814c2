from typing import Any

import pytest

from kedge.node.pod.restart_policy import restarts, restarts_all
from kedge.testing.pods import new_pod


@pytest.mark.parametrize(
    ("pod_policy", "own", "exit_code", "expected"),
    [
        ("Always", None, 0, True),
        ("Never", "Always", 0, True),
        ("Always", "Never", 1, False),
        ("Always", "OnFailure", 0, False),
        ("Never", "OnFailure", 1, True),
    ],
)
def test_a_containers_own_policy_comes_first(
    pod_policy: str, own: str | None, exit_code: int, expected: bool
) -> None:
    pod = new_pod(
        spec={"restartPolicy": pod_policy, "containers": [{"name": "c", "image": "i"}]},
        container={"restartPolicy": own},
    )
    assert restarts(pod.spec, pod.spec.containers[0], exit_code) is expected


def with_rule(operator: str, action: str = "Restart") -> Any:
    rule = {"action": action, "exitCodes": {"operator": operator, "values": [3, 4]}}
    return new_pod(container={"restartPolicy": "Never", "restartPolicyRules": [rule]})


@pytest.mark.parametrize(
    ("operator", "exit_code", "expected"),
    [("In", 3, True), ("In", 5, False), ("NotIn", 3, False), ("NotIn", 5, True)],
)
def test_rules_come_before_the_policy(operator: str, exit_code: int, expected: bool) -> None:
    pod = with_rule(operator)
    assert restarts(pod.spec, pod.spec.containers[0], exit_code) is expected


def test_a_rule_may_be_about_all_containers() -> None:
    pod = with_rule("In", "RestartAllContainers")
    assert restarts_all(pod.spec.containers[0], 3)
    assert not restarts_all(pod.spec.containers[0], 5)
