"""The annotations of simulated pods and nodes: their values, and the errors about bad ones."""

from collections.abc import Mapping
from typing import Any

import pytest

from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.simulation import (
    AT_ONCE,
    NOTHING,
    ContainerScript,
    DelayRange,
    UsageShape,
    container_script,
    node_usage,
    own,
    scripts_of,
)
from kedge.testing.pods import new_pod

PREFIX = "simulation.kedge.dev/"


def annotated(**values: str) -> dict[str, str]:
    """Return annotations; underscores stand for dashes."""
    return {PREFIX + name.replace("_", "-"): value for name, value in values.items()}


def script(
    annotations: Mapping[str, str],
    container: str = "main",
    node: Mapping[str, str] | None = None,
    **kind: Any,
) -> ContainerScript:
    kind = {"is_initial": False, "is_of_job": False, **kind}
    return container_script(own(annotations), own(node or {}), container, **kind)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ContainerScript()),
        (annotated(start_delay="2s"), ContainerScript(start_delay=DelayRange(2, 2))),
        (annotated(start_delay="1s..1m"), ContainerScript(start_delay=DelayRange(1, 60))),
        (annotated(ready_delay="never"), ContainerScript(ready_delay=None)),
        (annotated(run_for="5s"), ContainerScript(run_for=DelayRange(5, 5))),
        (annotated(exit_code="3"), ContainerScript(run_for=AT_ONCE, exit_code=3)),
        (
            annotated(exit_reason="OOMKilled", run_for="1s"),
            ContainerScript(run_for=DelayRange(1, 1), exit_code=137, exit_reason="OOMKilled"),
        ),
        (
            annotated(exit_reason="Error"),
            ContainerScript(run_for=AT_ONCE, exit_code=1, exit_reason="Error"),
        ),
        (annotated(cpu="250m"), ContainerScript(cpu=UsageShape(0.25, 0.25))),
        (
            annotated(cpu="250m..1", usage_period="10m"),
            ContainerScript(cpu=UsageShape(0.25, 1.0, 600.0)),
        ),
        (annotated(memory="1Mi"), ContainerScript(memory=UsageShape(1 << 20, 1 << 20))),
        (annotated(image_error="no such tag"), ContainerScript(image_error="no such tag")),
    ],
)
def test_annotations_say_how_a_container_behaves(
    annotations: dict[str, str], expected: ContainerScript
) -> None:
    assert script(annotations) == expected


def test_an_annotation_for_one_container_wins() -> None:
    annotations = annotated(run_for="5s") | {f"{PREFIX}run-for.main": "1s"}
    assert script(annotations).run_for == DelayRange(1, 1)
    assert script(annotations, "other").run_for == DelayRange(5, 5)


def test_init_containers_end_at_once_unless_they_are_named() -> None:
    annotations = annotated(run_for="1h", exit_code="1") | {f"{PREFIX}exit-code.setup": "2"}
    assert script(annotations, "first", is_initial=True) == ContainerScript(run_for=AT_ONCE)
    assert script(annotations, "setup", is_initial=True).exit_code == 2


def test_containers_of_jobs_end_after_a_second_unless_they_say_otherwise() -> None:
    assert script({}, is_of_job=True).run_for == DelayRange(1, 1)
    assert script(annotated(run_for="never"), is_of_job=True).run_for is None


def test_delays_of_a_node_are_defaults_of_its_pods() -> None:
    node = annotated(start_delay="3s", cpu="4")
    assert script({}, node=node) == ContainerScript(start_delay=DelayRange(3, 3))
    assert script(annotated(start_delay="1s"), node=node).start_delay == DelayRange(1, 1)
    assert node_usage(own(node)) == (UsageShape(4, 4), NOTHING)


def test_failures_come_to_an_end() -> None:
    found = script(annotated(exit_code="1", failures="2", image_error="no"))
    assert found.after(1) == found
    assert (found.after(2).exit_code, found.after(2).run_for) == (0, None)
    assert found.after(2).image_error == ""


def test_a_container_of_a_job_whose_failures_are_over_succeeds() -> None:
    found = script(annotated(exit_code="1", failures="1", run_for="3s"), is_of_job=True)
    assert (found.after(1).exit_code, found.after(1).run_for) == (0, DelayRange(3, 3))


def test_scripts_of_all_containers_are_those_of_each() -> None:
    annotations = own(annotated(run_for="5s", cpu="1") | {f"{PREFIX}cpu.b": "2"})
    node = own(annotated(start_delay="3s"))
    containers = [("a", False, False), ("b", False, True), ("c", True, False), ("d", False, False)]
    assert scripts_of(annotations, node, containers) == {
        name: container_script(annotations, node, name, is_initial=initial, is_of_job=of_job)
        for name, initial, of_job in containers
    }


def test_a_range_differs_from_pod_to_pod() -> None:
    assert [DelayRange(1, 3).at(each) for each in (0.0, 0.5)] == [1.0, 2.0]


def test_usage_swings_from_low_to_high_and_back() -> None:
    shape = UsageShape(1.0, 3.0, 100.0)
    assert [round(shape.at(age), 3) for age in (0, 25, 50, 75, 100)] == [1, 2, 3, 2, 1]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("start-delay", "5", 'Invalid value: "5": time: missing unit in duration "5"'),
        ("start-delay", "-1s", 'Invalid value: "-1s": must be between 0s and 366 days'),
        ("start-delay", "2s..1s", 'Invalid value: "2s..1s": the range ends before it begins'),
        ("exit-code", "256", 'Invalid value: "256": must be a whole number from 0 to 255'),
        ("exit-code", "-1", 'Invalid value: "-1": must be a whole number from 0 to 255'),
        (
            "exit-reason",
            "out of memory",
            'Invalid value: "out of memory": must be one word of letters and digits, such as'
            " OOMKilled",
        ),
        ("cpu", "1..much", None),
        ("memory", "-1Mi", 'Invalid value: "-1Mi": must be between 0 and 1125899906842624'),
        ("memory", "1e308", None),
        ("cpu", "1..1e308", None),
        ("image-error", "e" * 1025, None),
        ("usage-period", "0s", 'Invalid value: "0s": must be at least 1s'),
        ("image-error", "", 'Invalid value: "": must not be empty'),
        ("run-for.other", "1s", 'Invalid value: "1s": the pod has no container "other"'),
    ],
)
def test_a_bad_value_is_refused(name: str, value: str, error: str | None) -> None:
    pod = new_pod(metadata={"annotations": {PREFIX + name: value}})
    [found] = [each for each in PODS.strategy.validate(pod) if PREFIX in each.field]
    assert found.field == f"metadata.annotations[{PREFIX}{name}]"
    if error is not None:
        assert found.body == error


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    pod = new_pod(metadata={"annotations": annotated(startdelay="1s")})
    [found] = [each for each in PODS.strategy.validate(pod) if PREFIX in each.field]
    assert found.body.startswith(f'Unsupported value: "{PREFIX}startdelay": supported values: ')
    assert f'"{PREFIX}start-delay"' in found.body


def test_a_bad_value_in_a_template_is_refused() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": annotated(cpu="much")},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = DEPLOYMENTS.strategy.default(
        DEPLOYMENTS.from_document({"metadata": {"name": "web"}, "spec": spec})
    )
    found = [each.field for each in DEPLOYMENTS.strategy.validate(made)]
    assert found == [f"spec.template.annotations[{PREFIX}cpu]"]


def node(labels: dict[str, str], annotations: dict[str, str]) -> list[str]:
    meta = {"name": "n", "labels": labels, "annotations": annotations}
    found = NODES.strategy.validate(NODES.from_document({"metadata": meta}))
    return [str(each) for each in found]


def test_annotations_of_simulated_nodes_are_checked() -> None:
    labels = {f"{PREFIX}node": "true"}
    assert node(labels, annotated(start_delay="1s", cpu="100m..2")) == []
    [unknown] = node(labels, annotated(exit_code="1"))
    assert "Unsupported value" in unknown
    assert node({}, annotated(exit_code="1")) == []
