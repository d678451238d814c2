"""The revisions of a workload."""

from typing import Any

from kedge.cli.workloads.rollout.revisions import Revision, revisions, target


def owned(uid: str, number: int, **fields: Any) -> dict[str, Any]:
    owners = [{"uid": uid, "controller": True}]
    annotations = {
        "deployment.kubernetes.io/revision": str(number),
        "kubernetes.io/change-cause": f"change {number}",
    }
    return {"metadata": {"ownerReferences": owners, "annotations": annotations}, **fields}


def template(image: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"image": image}]}}


def test_those_of_a_deployment_are_its_replica_sets() -> None:
    hashed = {"pod-template-hash": "x"}
    history = [
        owned("1", 10, spec={"template": template("b", app="web", **hashed)}),
        owned("1", 2, spec={"template": template("a", app="web", **hashed)}),
        owned("other", 3, spec={"template": template("c")}),
    ]
    found = revisions({"kind": "Deployment", "metadata": {"uid": "1"}}, history)
    assert found == [
        Revision(2, "change 2", template("a", app="web")),
        Revision(10, "change 10", template("b", app="web")),
    ]


def test_those_of_others_are_controller_revisions() -> None:
    data = {"spec": {"template": {"$patch": "replace", **template("a")}}}
    history = [owned("1", 1, revision=4, data=data)]
    found = revisions({"kind": "StatefulSet", "metadata": {"uid": "1"}}, history)
    assert found == [Revision(4, "change 1", template("a"))]


def test_undo_goes_to_the_one_before_or_to_the_numbered_one() -> None:
    one, two, three = (Revision(number, "", {}) for number in (1, 2, 3))
    assert target([one, two, three], 0) == two
    assert target([one, two, three], 1) == one
    assert target([one], 0) is None
    assert target([one], 7) is None
