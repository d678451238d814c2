import re

import pytest
from msgspec.structs import replace

from kedge.api.apps_v1.deployment import Deployment, DeploymentSpec, DeploymentStatus
from kedge.api.apps_v1.replica_set import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import LabelSelector, ObjectMeta
from kedge.controllers.workloads import revisions
from kedge.controllers.workloads.revisions import HISTORY, REVISION


def template(image: str = "nginx", **labels: str) -> PodTemplateSpec:
    made = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web", **labels}))
    return replace(made, spec=replace(made.spec, schedulerName=image))


def deployment(**annotations: str) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="ns", uid="u-1", annotations=annotations),
        spec=DeploymentSpec(
            replicas=3, selector=LabelSelector(matchLabels={"app": "web"}), template=template()
        ),
    )


def replica_set(name: str, revision: str = "", replicas: int = 0, born: int = 0) -> ReplicaSet:
    stamp = f"2030-01-01T00:00:{born:02}Z"
    annotations = {REVISION: revision} if revision else {}
    return ReplicaSet(
        metadata=ObjectMeta(name=name, creationTimestamp=stamp, annotations=annotations),
        spec=ReplicaSetSpec(replicas=replicas, template=template()),
        status=ReplicaSetStatus(replicas=replicas),
    )


def test_hash_is_stable_short_and_of_safe_letters() -> None:
    first = revisions.template_hash(template(), None)
    assert first == revisions.template_hash(template(), None)
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{1,10}", first)


def test_hash_does_not_depend_on_the_order_of_labels() -> None:
    one, other = template(a="1", b="2"), template(b="2", a="1")
    assert revisions.template_hash(one, None) == revisions.template_hash(other, None)


def test_hash_differs_with_the_template_and_with_each_collision() -> None:
    tries = [(template(), None), (template(), 1), (template(), 2), (template("other"), None)]
    assert len({revisions.template_hash(*each) for each in tries}) == 4


def test_new_set_selects_by_the_hash() -> None:
    made = revisions.new_set(deployment(), ())
    mark = made.metadata.labels["pod-template-hash"]
    assert made.metadata.name == f"web-{mark}"
    assert made.spec.selector is not None
    assert made.spec.selector.matchLabels == {"app": "web", "pod-template-hash": mark}
    assert made.spec.template.metadata.labels == {"app": "web", "pod-template-hash": mark}
    [owner] = made.metadata.ownerReferences
    assert (owner.kind, owner.name, owner.uid, owner.controller) == (
        "Deployment",
        "web",
        "u-1",
        True,
    )
    assert revisions.is_same_template(made.spec.template, deployment().spec.template)


def test_collision_leads_to_another_name() -> None:
    taken = revisions.new_set(deployment(), ())
    again = replace(deployment(), status=DeploymentStatus(collisionCount=1))
    assert revisions.new_set(again, ()).metadata.name != taken.metadata.name


def test_long_name_makes_room_for_the_hash() -> None:
    assert revisions.set_name("a" * 253, "hash") == "a" * 248 + "-hash"
    assert revisions.set_name("web", "hash") == "web-hash"


def test_annotations_are_handed_down_except_for_the_deployments_own() -> None:
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    made = deployment(**{"team": "blue", applied: "{}", REVISION: "7", HISTORY: "1"})
    assert revisions.handed_down(made, {"team": "red", REVISION: "2"}) == {
        "team": "blue",
        REVISION: "2",
    }


def test_set_that_is_new_again_remembers_its_former_numbers() -> None:
    first = revisions.renumbered({REVISION: "1"}, 3)
    assert first == {REVISION: "3", HISTORY: "1"}
    assert revisions.renumbered(first, 5) == {REVISION: "5", HISTORY: "1,3"}


def test_number_never_falls() -> None:
    assert revisions.renumbered({REVISION: "5"}, 3) == {REVISION: "5"}
    assert revisions.renumbered({REVISION: "words"}, 3) == {REVISION: "words"}


def test_history_forgets_the_oldest_when_it_grows_too_long() -> None:
    long = ",".join(str(number) for number in range(1000, 1400))
    found = revisions.renumbered({REVISION: "1400", HISTORY: long}, 1401)[HISTORY]
    assert len(found) <= 2000
    assert found.endswith(",1399,1400")
    assert found.startswith("1001,")


def test_oldest_of_the_sets_with_the_template_is_the_new_one() -> None:
    other = replica_set("other", born=1)
    other = replace(other, spec=replace(other.spec, template=template("other")))
    sets = [replica_set("b", born=3), other, replica_set("a", born=2)]
    found = revisions.sorted_out(deployment(), sets)
    assert found.new is not None
    assert found.new.metadata.name == "a"
    assert [each.metadata.name for each in found.old] == ["other", "b"]


def names(limit: int, sets: list[ReplicaSet]) -> set[str]:
    made = deployment()
    made = replace(made, spec=replace(made.spec, revisionHistoryLimit=limit))
    return {each.metadata.name for each in revisions.outlived(made, sets)}


def test_lowest_numbers_are_forgotten_first_whatever_their_age() -> None:
    numbers = ["3", "1", "4", "2"]
    sets = [replica_set(f"s{i}", number, born=i) for i, number in enumerate(numbers)]
    assert names(2, sets) == {"s1", "s3"}
    assert names(0, sets) == {"s0", "s1", "s2", "s3"}
    assert names(2**31 - 1, sets) == set()


@pytest.mark.parametrize(
    "kept",
    [
        replica_set("kept", "1", replicas=1),
        replace(replica_set("kept", "1"), status=ReplicaSetStatus(replicas=1)),
        replace(replica_set("kept", "1"), metadata=ObjectMeta(name="kept", generation=2)),
        replace(
            replica_set("kept", "1"),
            metadata=ObjectMeta(name="kept", deletionTimestamp="2030-01-01T00:00:00Z"),
        ),
    ],
    ids=["wanted", "still there", "not observed", "leaving"],
)
def test_set_that_is_in_use_is_not_forgotten(kept: ReplicaSet) -> None:
    assert names(0, [kept]) == set()
