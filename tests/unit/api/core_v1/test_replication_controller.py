from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.replication_controller import (
    RESOURCE,
    ReplicationController,
    ReplicationControllerSpec,
    ReplicationControllerStatus,
)
from kedge.api.model import ObjectMeta


def of(**spec: object) -> ReplicationController:
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={"app": "web"}),
        spec=PodSpec(containers=[Container(name="c", image="nginx:1.29")]),
    )
    fields = replace(ReplicationControllerSpec(template=template), **spec)
    return RESOURCE.strategy.default(ReplicationController(spec=fields))


def errors(obj: ReplicationController) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_one_pod_known_by_the_labels_of_its_template() -> None:
    obj = of()
    assert obj.spec.replicas == 1
    assert obj.spec.selector == obj.metadata.labels == {"app": "web"}
    assert obj.spec.template is not None
    assert obj.spec.template.spec.restartPolicy == "Always"
    assert errors(obj) == []


def test_none_wanted_stays_none_wanted() -> None:
    obj = of(replicas=0)
    assert obj.spec.replicas == 0
    assert RESOURCE.to_document(obj)["spec"]["replicas"] == 0


def test_pods_must_be_found_again() -> None:
    assert errors(of(selector={"app": "other"})) == [
        'spec.template.metadata.labels: Invalid value: {"app":"web"}: '
        "`selector` does not match template `labels`"
    ]
    assert errors(of(template=None)) == [
        "spec.selector: Required value",
        "spec.template: Required value",
    ]


def test_pods_that_end_are_not_for_controllers() -> None:
    template = of().spec.template
    assert template is not None
    ending = replace(template, spec=replace(template.spec, restartPolicy="Never"))
    assert errors(of(template=ending)) == [
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
    ]


def test_no_more_can_be_ready_than_there_are() -> None:
    status = ReplicationControllerStatus(replicas=1, readyReplicas=2, availableReplicas=2)
    obj = replace(of(), status=status)
    assert [error.field for error in RESOURCE.strategy.validate_status(obj, obj)] == [
        "status.readyReplicas",
        "status.availableReplicas",
    ]


def test_the_wide_columns_show_what_runs() -> None:
    row = {column.name: column.cell(of()) for column in RESOURCE.presentation.columns}
    assert (row["Containers"], row["Images"], row["Selector"]) == ("c", "nginx:1.29", "app=web")
