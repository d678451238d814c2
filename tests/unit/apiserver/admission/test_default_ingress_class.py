"""The class of Ingresses that name none."""

from typing import Any, Literal

import pytest

from kedge.api.builtin.resources import RESOURCES
from kedge.api.model import Document, ObjectMeta
from kedge.apiserver.admission.default_ingress_class import DefaultIngressClass, default_class
from kedge.testing.admission import attempt, cache_with

CLASS = next(each for each in RESOURCES if each.plural == "ingressclasses")
INGRESS = next(each for each in RESOURCES if each.plural == "ingresses")
DEFAULT = {"ingressclass.kubernetes.io/is-default-class": "true"}


def a_class(name: str, time: str = "1", default: bool = True) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "creationTimestamp": time}
    return {"metadata": meta | ({"annotations": DEFAULT} if default else {})}


async def class_of(
    spec: dict[str, Any],
    operation: Literal["CREATE", "UPDATE"] = "CREATE",
    *,
    default: bool = True,
    annotations: dict[str, str] | None = None,
) -> Any:
    """The class of an Ingress after admission, where `kedge` may be the default."""
    document = {"metadata": a_class("kedge", default=default)["metadata"]}
    document["metadata"].pop("creationTimestamp")
    cache = await cache_with([CLASS], [(CLASS, document)])
    meta = ObjectMeta(name="i", namespace="n", annotations=annotations or {})
    ingress = Document(
        apiVersion="networking.k8s.io/v1", kind="Ingress", metadata=meta, content={"spec": spec}
    )
    plugin = DefaultIngressClass(cache.of(CLASS))
    made = attempt(INGRESS, operation, ingress)
    changed = await plugin.mutate(made)
    assert isinstance(changed, Document)
    await plugin.validate(made)
    return changed.content["spec"].get("ingressClassName")


async def test_an_ingress_without_a_class_gets_the_default() -> None:
    assert await class_of({}) == "kedge"


async def test_an_ingress_with_a_class_keeps_it() -> None:
    assert await class_of({"ingressClassName": "nginx"}) == "nginx"
    assert await class_of({}, annotations={"kubernetes.io/ingress.class": "nginx"}) is None


async def test_without_a_default_and_on_updates_nothing_changes() -> None:
    assert await class_of({}, default=False) is None
    assert await class_of({}, "UPDATE") is None


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        ([], ""),
        ([a_class("a", default=False)], ""),
        ([a_class("b"), a_class("a")], "a"),
        ([a_class("a", "1"), a_class("b", "2")], "b"),
    ],
)
def test_of_several_defaults_the_newest_counts(classes: list[Any], name: str) -> None:
    assert default_class(classes) == name
