"""Which texts of a pod are free, and how an admitted pod gets those of another one."""

from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver.free_texts import with_texts, without_texts


def document(text: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"a": text}, "annotations": {"b": text}},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "env": [{"name": "X", "value": text}]},
                {"name": "d", "image": "i", "command": ["run", text], "args": [text]},
            ],
            "initContainers": [{"name": "e", "image": "i", "args": [text]}],
        },
    }


def made(text: str) -> Pod:
    return pod.RESOURCE.from_document(document(text))


def mask(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(without_texts(value)[0])


def test_pods_that_differ_in_free_texts_are_equal_without_them() -> None:
    assert mask(document("1")) == mask(document("2"))


def test_a_pod_gets_the_texts_of_another_one() -> None:
    _, texts = without_texts(document("2"))
    assert with_texts(made("1"), texts) == made("2")


def test_a_pod_with_these_texts_stays_the_same_object() -> None:
    _, texts = without_texts(document("1"))
    one = made("1")
    assert with_texts(one, texts) is one


def test_containers_with_these_texts_stay_the_same_objects() -> None:
    other = document("1")
    other["spec"]["containers"][1]["args"] = ["2"]
    one = made("1")
    changed = with_texts(one, without_texts(other)[1])
    assert changed.metadata is one.metadata
    assert changed.spec.containers[0] is one.spec.containers[0]
    assert changed.spec.containers[1].args == ["2"]


def test_the_posted_document_is_left_as_it_is() -> None:
    given = document("1")
    without_texts(given)
    assert given == document("1")


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("metadata.labels.a", "fine", "not fine!"),
        ("metadata.labels.a", "fine", None),
        ("metadata.annotations.seccomp.security.alpha.kubernetes.io/pod", "x", "y"),
        ("metadata.annotations.kedge.dev/x", "x", "y"),
        ("spec.containers.0.env.0.value", "x", ""),
        ("spec.containers.0.env.0.value", "x", "$(Y)"),
        ("spec.containers.0.env.0.value", "x", 1),
        ("spec.containers.0.env.0.name", "x", "y"),
        ("spec.containers.0.image", "x", "y"),
        ("spec.containers.1.command", ["x"], ["x", "y"]),
        ("spec.containers.1.command", ["x"], []),
        ("spec.containers.1.args", ["x"], [1]),
        ("spec.containers.1.args", ["x"], "x"),
        ("spec.initContainers", [], None),
        ("spec.hostname", "x", "y"),
    ],
)
def test_what_has_a_meaning_makes_a_difference(path: str, one: object, other: object) -> None:
    assert mask(changed(path, one)) != mask(changed(path, other))


@pytest.mark.parametrize("name", ["affinity", "topologySpreadConstraints"])
def test_labels_have_a_meaning_where_placement_may_refer_to_them(name: str) -> None:
    one, other = document("1"), document("1")
    one["spec"][name] = other["spec"][name] = {}
    other["metadata"]["labels"]["a"] = "2"
    assert mask(one) != mask(other)


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the document with another value; a name behind the second dot may contain dots."""
    result = document("1")
    *steps, last = path.split(".", 2) if "metadata" in path else path.split(".")
    node: Any = result
    for step in steps:
        node = node[int(step) if step.isdigit() else step]
    node[last] = value
    return result
