"""The class of an Ingress that names none."""

from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
DEFAULT = {"ingressclass.kubernetes.io/is-default-class": "true"}
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}
PLUGINS = ("NamespaceLifecycle", "DefaultIngressClass")


def class_(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations}
    return {"metadata": meta, "spec": {"controller": "example.com/gateway"}}


def ingress(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "i", "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"defaultBackend": BACKEND, **spec}}


async def created(server: LocalServer, body: dict[str, Any]) -> str | None:
    made = await server.post(INGRESSES, body)
    name: str | None = made["spec"].get("ingressClassName")
    return name


@pytest.mark.parametrize(
    ("classes", "body", "expected"),
    [
        ([], ingress(), None),
        ([("a", {})], ingress(), None),
        ([("a", DEFAULT)], ingress(), "a"),
        ([("b", DEFAULT), ("a", DEFAULT)], ingress(), "a"),
        ([("a", DEFAULT)], ingress(ingressClassName="b"), "b"),
        ([("a", DEFAULT)], ingress({"kubernetes.io/ingress.class": "b"}), None),
    ],
)
async def test_the_class_of_a_new_ingress(
    classes: list[tuple[str, dict[str, str]]], body: dict[str, Any], expected: str | None
) -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        for name, annotations in classes:
            await server.post(CLASSES, class_(name, annotations))
        assert await created(server, body) == expected


async def test_the_newest_default_counts() -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        await server.post(CLASSES, class_("a", DEFAULT))
        await server.clock.advance(2)
        await server.post(CLASSES, class_("z", DEFAULT))
        assert await created(server, ingress()) == "z"


async def test_an_update_does_not_change_the_class() -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        await server.post(INGRESSES, ingress())
        await server.post(CLASSES, class_("a", DEFAULT))
        put = await server.put(f"{INGRESSES}/i", ingress({"changed": "yes"}))
        assert "ingressClassName" not in put["spec"]


async def test_annotation_and_field_must_agree() -> None:
    async with LocalServer.running(admission=PLUGINS) as server:
        both = ingress({"kubernetes.io/ingress.class": "a"}, ingressClassName="b")
        answer = await server.call("POST", INGRESSES, both)
        assert answer.status == 422
        assert (
            'annotations.kubernetes.io/ingress.class: Invalid value: "a": must match'
            " `ingressClassName` when both are specified"
        ) in answer.message
