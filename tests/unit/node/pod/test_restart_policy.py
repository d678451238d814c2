from typing import Any

import pytest

from kedge.node.pod.restart_policy import restarts, restarts_all, survives_failure
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


@pytest.mark.parametrize(
    ("pod_policy", "own", "expected"),
    [
        ("Always", None, True),
        ("OnFailure", None, True),
        ("Never", None, False),
        ("Never", "Always", True),
        ("Always", "Never", False),
    ],
)
def test_a_container_that_failed_a_probe_starts_again_unless_its_policy_is_never(
    pod_policy: str, own: str | None, expected: bool
) -> None:
    spec = {"restartPolicy": pod_policy, "containers": [{"name": "c", "image": "i"}]}
    pod = new_pod(spec=spec, container={"restartPolicy": own})
    assert survives_failure(pod.spec, pod.spec.containers[0]) is expected


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


def test_a_rule_without_exit_codes_is_passed_over() -> None:
    rules = [
        {"action": "Restart"},
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}},
    ]
    pod = new_pod(container={"restartPolicy": "Never", "restartPolicyRules": rules})
    assert restarts(pod.spec, pod.spec.containers[0], 3)
    assert not restarts(pod.spec, pod.spec.containers[0], 4)
