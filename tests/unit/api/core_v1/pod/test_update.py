"""Answers to changes of pods, of their status and of their ephemeral containers."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from kedge.api.core_v1.pod.defaults import prepare_for_status_update
from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.update import only_ephemeral, validate_ephemeral
from kedge.api.core_v1.pod.validation import validate
from kedge.machinery.errors import FieldError
from kedge.testing.pods import new_pod, without_nothing

CASES = yaml.safe_load(Path(__file__).with_name("update.yaml").read_text())


def changed(old: Pod, after: dict[str, Any]) -> Pod:
    document = RESOURCE.to_document(old)
    document["spec"].update(after.get("spec", {}))
    document["spec"]["containers"][0].update(after.get("container", {}))
    document["status"].update(after.get("status", {}))
    document["metadata"].update(after.get("metadata", {}))
    return RESOURCE.strategy.default(RESOURCE.from_document(without_nothing(document)))


def errors_of(via: str, new: Pod, old: Pod) -> list[FieldError]:
    if via == "ephemeralcontainers":
        new = only_ephemeral(new, old)
        return [*validate(new), *validate_ephemeral(new, old)]
    if via == "status":
        return list(
            RESOURCE.strategy.validate_status(
                replace(prepare_for_status_update(new, old), spec=old.spec), old
            )
        )
    new = replace(new, status=old.status)
    return [*validate(new), *RESOURCE.strategy.validate_update(new, old)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_changes_are_allowed_and_refused_as_in_kubernetes(case: dict[str, Any]) -> None:
    old = new_pod(**case.get("before", {}))
    errors = errors_of(case.get("via", ""), changed(old, case["after"]), old)
    # The difference is below the first line.
    told = dict.fromkeys(str(error).splitlines()[0] for error in errors)
    assert list(told) == case["errors"]


def test_a_refused_update_names_the_fields_that_differ() -> None:
    old = new_pod()
    new = changed(old, {"spec": {"hostname": "a", "subdomain": "b"}})
    (error,) = RESOURCE.strategy.validate_update(new, old)
    changed_lines = [line for line in str(error).splitlines()[1:] if line[0] in "+-"]
    assert changed_lines == [
        '- "Hostname": "",',
        '- "Subdomain": "",',
        '+ "Hostname": "a",',
        '+ "Subdomain": "b",',
    ]


ENDED = {"name": "ctr", "state": {"terminated": {"exitCode": 1}}}
ALIVE = {"name": "ctr", "state": {"running": {}}}
EXCEPTION = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}


@pytest.mark.parametrize(
    ("pod_policy", "container", "allowed"),
    [
        ("Always", {}, True),
        ("OnFailure", {}, True),
        ("Never", {}, False),
        ("Always", {"restartPolicy": "Never"}, False),
        ("Never", {"restartPolicy": "Never", "restartPolicyRules": [EXCEPTION]}, True),
    ],
)
def test_a_container_that_ended_lives_again_only_if_it_may_restart(
    pod_policy: str, container: dict[str, Any], allowed: bool
) -> None:
    pod = new_pod(spec={"restartPolicy": pod_policy}, container=container)
    old = changed(pod, {"status": {"containerStatuses": [ENDED]}})
    new = changed(pod, {"status": {"containerStatuses": [ALIVE]}})
    assert [str(error) for error in RESOURCE.strategy.validate_status(new, old)] == (
        []
        if allowed
        else [
            "status.containerStatuses[0].state: Forbidden: "
            "may not be transitioned to non-terminated state"
        ]
    )


def test_a_written_status_keeps_what_older_nodes_leave_out() -> None:
    old = changed(new_pod(), {"status": {"observedGeneration": 3}})
    new = changed(old, {"status": {"qosClass": "", "observedGeneration": 0, "phase": "Running"}})
    status = prepare_for_status_update(new, old).status
    assert (status.phase, status.qosClass, status.observedGeneration) == (
        "Running",
        "BestEffort",
        3,
    )


def test_existing_ephemeral_containers_stay_as_they_are() -> None:
    added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}
    old = changed(new_pod(), added)
    other = {"spec": {"ephemeralContainers": [{"name": "e", "image": "j"}]}}
    for after, verb in ((other, "changed"), ({"spec": {"ephemeralContainers": []}}, "removed")):
        (error,) = validate_ephemeral(changed(old, after), old)
        first, _, difference = error.body.partition("\n")
        assert first == f'Forbidden: existing ephemeral containers "e" may not be {verb}'
        assert ('- "Image": "i",\n+ "Image": "j",\n' in difference) == (verb == "changed")
