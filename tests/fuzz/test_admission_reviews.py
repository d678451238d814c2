"""Reviews with any object: the webhook answers, or refuses in the terms of a review."""

import base64
import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook import decisions, review
from kedge.admission_webhook.app import Decision
from kedge.admission_webhook.limit_ranges import LimitRangesByNamespace
from kedge.admission_webhook.review import ReviewRequest, Verdict
from kedge.api.limits.bounds import NamespaceLimits
from kedge.machinery.errors import StatusError
from kedge.machinery.patch import apply_json

WORDS = st.sampled_from(
    [
        "",
        "main",
        "main/x",
        "1",
        "-1",
        "x" * 99,
        "resources.limits.cpu",
        "resources.limits.a/b",
        "metadata.annotations['a']",
        'spec.containers[?(@.name=="main")].resources.limits.cpu',
        "spec.containers[?(",
    ]
)
FIELDS = st.sampled_from(
    [
        "name",
        "image",
        "env",
        "value",
        "valueFrom",
        "fieldRef",
        "fieldPath",
        "apiVersion",
        "items",
        "path",
        "downwardAPI",
        "projected",
        "sources",
        "resources",
        "limits",
        "requests",
        "cpu",
        "metadata",
        "annotations",
        "labels",
        "spec",
        "containers",
        "initContainers",
        "volumes",
        "template",
        "jobTemplate",
        "type",
        "selector",
        "min",
        "max",
        "matchLabels",
        "fieldSelector",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=20,
)
SOURCES = st.dictionaries(st.sampled_from(["fieldRef", "x"]), VALUES, max_size=2) | st.builds(
    reviews.field, WORDS
)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.just("main") | VALUES},
    optional={
        "env": st.lists(st.builds(lambda source: {"name": "A", "valueFrom": source}, SOURCES))
        | VALUES,
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.just({"cpu": "1"}) | VALUES, "requests": VALUES}
        ),
    },
)
ITEMS = st.builds(lambda path, source: {"path": path, **source}, WORDS, SOURCES)
VOLUMES = st.builds(lambda items: {"downwardAPI": {"items": items}}, st.lists(ITEMS, max_size=2))
PODS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": VALUES,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(CONTAINERS | VALUES, max_size=3),
                "initContainers": st.lists(CONTAINERS, max_size=2) | VALUES,
                "volumes": st.lists(VOLUMES | VALUES, max_size=2),
                "resources": VALUES,
            },
        ),
    },
)
TEMPLATES = st.builds(lambda pod: {"spec": {"template": pod}}, PODS)
KINDS = st.sampled_from(
    [
        ("", "pods"),
        ("apps", "deployments"),
        ("batch", "cronjobs"),
        ("kedge.dev", "limitranges"),
        ("", "persistentvolumeclaims"),
    ]
)
BOUNDS = reviews.limits({"type": "Container", "max": {"cpu": "1"}, "selector": {"name": "web"}})


@given(KINDS, PODS | TEMPLATES | st.dictionaries(FIELDS, VALUES), st.sampled_from([None, BOUNDS]))
def test_every_object_gets_an_answer(
    kind: tuple[str, str], document: dict[str, Any], bounds: Any
) -> None:
    request = reviews.of(*kind, document)
    for decide in (decisions.mutate, decisions.validate):
        verdict = verdict_of(decide, request, bounds)
        told = json.loads(json.dumps(review.answer(request, verdict)))["response"]
        assert told["uid"] == request.uid
        assert verdict.refusal is None or verdict.refusal.code in (400, 403, 422)
        if verdict.changed is not None:
            patch = json.loads(base64.b64decode(told["patch"])) if "patch" in told else []
            assert apply_json(document, patch) == verdict.changed


def verdict_of(decide: Decision, request: ReviewRequest, bounds: NamespaceLimits | None) -> Verdict:
    try:
        return decide(request, bounds)
    except StatusError as error:
        return Verdict(error)


@given(st.lists(st.dictionaries(FIELDS, VALUES) | VALUES, max_size=3))
def test_every_stored_limit_range_can_be_combined_or_is_reported(items: list[Any]) -> None:
    known = LimitRangesByNamespace()
    try:
        known.put(reviews.limit_range(*items))
    except (ValueError, TypeError):
        return
    with contextlib.suppress(StatusError):
        known.bounds("shop")
