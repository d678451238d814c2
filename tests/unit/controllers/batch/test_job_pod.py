"""The pods that jobs make."""

from typing import Any

from kedge.api.batch_v1.job_types import Job, JobSpec
from kedge.api.core_v1.pod.container import Container, EnvVar
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.model import ObjectMeta
from kedge.controllers.batch.job_pod import INDEX_VARIABLE, new_indexed_pod, new_pod
from kedge.controllers.batch.job_tally import FINALIZER, INDEX_FAILURES


def job(name: str = "work", *, pod: PodSpec | None = None, **spec: Any) -> Job:
    meta = ObjectMeta(finalizers=["example.com/mine"], labels={"app": "x"})
    template = PodTemplateSpec(metadata=meta, spec=pod or PodSpec())
    return Job(metadata=ObjectMeta(name=name, uid="u"), spec=JobSpec(template=template, **spec))


def test_finalizer_joins_those_of_the_template() -> None:
    made = new_pod(job())
    assert made.metadata.finalizers == ["example.com/mine", FINALIZER]
    assert made.metadata.generateName == "work-"
    assert made.metadata.labels == {"app": "x"}


def test_long_name_leaves_room_for_the_index() -> None:
    prefix = new_indexed_pod(job("j" * 63), 12345, None).metadata.generateName
    assert prefix == "j" * 51 + "-12345-"
    assert len(prefix) == 58


def test_own_variable_of_that_name_is_kept() -> None:
    own = EnvVar(name=INDEX_VARIABLE, value="mine")
    containers = [Container(name="a", env=[own]), Container(name="b")]
    spec = PodSpec(containers=containers, initContainers=[Container(name="c")])
    made = new_indexed_pod(job(pod=spec), 0, None)
    assert made.spec.containers[0].env == [own]
    for container in (made.spec.containers[1], made.spec.initContainers[0]):
        assert [each.name for each in container.env] == [INDEX_VARIABLE]


def test_replacement_knows_how_often_its_index_failed() -> None:
    asked = job(backoffLimitPerIndex=3)
    assert new_indexed_pod(asked, 0, None).metadata.annotations[INDEX_FAILURES] == "0"
    failed = Pod(metadata=ObjectMeta(annotations={INDEX_FAILURES: "1"}))
    assert new_indexed_pod(asked, 0, failed).metadata.annotations[INDEX_FAILURES] == "2"
