"""Objects that are small to write down and large to unfold."""

from collections.abc import Callable
from typing import Any

import pytest

Json = dict[str, Any]
KEYS = 20_000


def config_map(pods: Any, name: str, data: dict[str, str]) -> str:
    path = f"/api/v1/namespaces/{pods.namespace}/configmaps"
    pods.api.create(path, {"metadata": {"name": name}, "data": data})
    return f"{path}/{name}"


def test_a_config_map_of_many_keys_that_keeps_changing(
    pods: Any, agent: Any, responds: Callable[[str], None], eventually: Callable[..., Any]
) -> None:
    """Each change cost the agent seconds: all files were read, written and deleted."""
    path = config_map(pods, "many", {f"key-{number}": "x" for number in range(KEYS)})
    pods.create(
        "shows",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "configMap": {"name": "many"}}],
    )
    uid = pods.ready("shows")["metadata"]["uid"]
    file = agent.node / "memory" / uid / "volumes" / "v" / "key-7"
    before = agent.processor_seconds()
    for text in ("one", "two", "three"):
        pods.api.merge(path, {"data": {"key-7": text}})
        eventually(lambda text=text: file.read_text() == text, within=40)
    spent = agent.processor_seconds() - before
    responds("others")
    assert spent < 3 * 1.0


def bomb(levels: int) -> list[Json]:
    first = [{"name": "V0", "value": "x" * 1000}]
    return first + [
        {"name": f"V{level}", "value": f"$(V{level - 1})" * 10} for level in range(1, levels)
    ]


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"env": bomb(9)}, id="variables"),
        pytest.param({"env": bomb(2), "args": ["$(V1)" * 10_000] * 10}, id="arguments"),
        pytest.param(
            {
                "env": bomb(3),
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(V2)" * 1000}],
            },
            id="subPath",
        ),
    ],
)
def test_references_to_references(
    pods: Any, agent: Any, about: Any, responds: Callable[[str], None], container: Json
) -> None:
    """Ten references, nine levels deep, are a terabyte."""
    before = agent.memory()
    pods.create("bomb", container=container, volumes=[{"name": "v", "emptyDir": {}}])
    pods.when(
        "bomb",
        lambda pod: "longer than" in about.state(pod).get("waiting", {}).get("message", ""),
    )
    responds("others")
    assert agent.memory() - before < 50 << 20


def test_references_that_never_end(pods: Any, responds: Callable[[str], None]) -> None:
    """From each beginning, the end was looked for to the end of the text."""
    pods.create("open", container={"env": [{"name": "A", "value": "$(" * 400_000}]})
    responds("others")


def test_one_large_key_under_many_names(
    pods: Any, agent: Any, about: Any, responds: Callable[[str], None]
) -> None:
    """A megabyte under a thousand names would be a gigabyte of the machine's memory."""
    config_map(pods, "large", {"key": "x" * 900_000})
    items = [{"key": "key", "path": f"p{number}"} for number in range(1000)]
    pods.create(
        "shows",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "configMap": {"name": "large", "items": items}}],
    )
    pods.when("shows", lambda _: "larger than" in str(pods.events("shows", "FailedMount")))
    responds("others")


def test_all_annotations_under_many_names(
    pods: Any, agent: Any, responds: Callable[[str], None]
) -> None:
    before = agent.memory()
    field = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    items = [{"path": f"p{number}", **field} for number in range(4000)]
    pods.create(
        "shows",
        metadata={"annotations": {"a": "x" * 250_000}},
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "downwardAPI": {"items": items}}],
    )
    pods.when("shows", lambda _: "larger than" in str(pods.events("shows", "FailedMount")))
    responds("others")
    assert agent.memory() - before < 50 << 20


def test_many_variables_of_one_secret(
    pods: Any, agent: Any, responds: Callable[[str], None]
) -> None:
    """The secret was asked for, and decoded whole, for each of them."""
    config_map(pods, "many", {f"key-{number}": "x" for number in range(10_000)})
    env = [
        {"name": f"V{n}", "valueFrom": {"configMapKeyRef": {"name": "many", "key": f"key-{n}"}}}
        for n in range(2000)
    ]
    before = agent.processor_seconds()
    pods.create("many", container={"env": env})
    pods.ready("many")
    responds("others")
    assert agent.processor_seconds() - before < 5


def test_a_pod_of_many_volumes(pods: Any, agent: Any, responds: Callable[[str], None]) -> None:
    config_map(pods, "small", {"key": "x"})
    volumes = [{"name": f"v{n}", "configMap": {"name": "small"}} for n in range(1000)]
    before = agent.processor_seconds()
    pods.create("many", volumes=volumes)
    responds("others")
    pods.ready("many")
    assert agent.processor_seconds() - before < 10
