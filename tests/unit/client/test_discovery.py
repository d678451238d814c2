from dataclasses import dataclass, field

import msgspec

from kedge.client.client import Client
from kedge.client.discovery import Discovery, ServedResources, parse
from kedge.client.transport import Body, Call, LocalTransport


def listed(plural: str, kind: str, *verbs: str, scope: str = "Namespaced") -> dict[str, object]:
    return {"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": verbs}


def page(group: str, **versions: list[dict[str, object]]) -> bytes:
    told = [{"version": name, "resources": found} for name, found in versions.items()]
    return msgspec.json.encode({"items": [{"metadata": {"name": group}, "versions": told}]})


SCALERS = page(
    "autoscaling",
    v2=[listed("horizontalpodautoscalers", "HorizontalPodAutoscaler", "list", "delete")],
    v1=[
        listed("horizontalpodautoscalers", "HorizontalPodAutoscaler", "list", "delete"),
        listed("oddities", "Oddity", "list", scope="Cluster"),
    ],
)


def test_of_each_resource_one_version_is_preferred() -> None:
    served = ServedResources(parse(SCALERS))
    assert [(r.version, r.plural) for r in served.preferred("list")] == [
        ("v2", "horizontalpodautoscalers"),
        ("v1", "oddities"),
    ]
    assert [r.plural for r in served.preferred("list", "delete")] == ["horizontalpodautoscalers"]


def test_a_kind_is_found_in_every_version() -> None:
    served = ServedResources(parse(SCALERS))
    found = served.of_kind("autoscaling/v1", "HorizontalPodAutoscaler")
    assert found is not None
    assert (found.version, found.namespaced) == ("v1", True)
    assert served.of_kind("autoscaling/v3", "HorizontalPodAutoscaler") is None


@dataclass
class Page:
    body: Body
    status: int = 200
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("ETag", '"1"')])


async def test_what_has_not_changed_is_not_sent_again() -> None:
    answers: list[int] = []

    def serve(call: Call) -> Page:
        known = call.headers.get("if-none-match") == '"1"'
        answers.append(304 if known else 200)
        return Page(b"", 304) if known else Page(SCALERS if call.path == "/apis" else page(""))

    discovery = Discovery(Client(LocalTransport(serve)))
    first = await discovery.served()
    assert await discovery.served() is first
    assert answers == [200, 200, 304, 304]


def test_a_resource_comes_with_all_the_names_it_goes_by() -> None:
    names = {"singularResource": "limit", "shortNames": ["limits"], "categories": ["all"]}
    (found,) = parse(page("", v1=[{**listed("limitranges", "LimitRange"), **names}]))
    shown = found.presentation
    assert (found.singular, shown.short_names, shown.categories) == ("limit", ["limits"], ["all"])
