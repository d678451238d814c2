"""Kind and apiVersion of documents, compared with those of the URL."""

from typing import Any

import pytest

from kedge.api.core_v1 import config_map
from kedge.apiserver.verbs import type_meta
from kedge.apiserver.verbs.unreadable_document import UnreadableDocument, UntypedDocument

SCHEME = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(UnreadableDocument) as caught:
        type_meta.check(config_map.RESOURCE, document)
    return caught.value.why


@pytest.mark.parametrize(
    "document",
    [{}, {"kind": None}, {"apiVersion": ""}, {"kind": "ConfigMap", "apiVersion": "v1"}],
)
def test_a_document_may_leave_out_its_type(document: dict[str, Any]) -> None:
    type_meta.check(config_map.RESOURCE, document)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"kind": "Other"}, f'no kind "Other" is registered for version "v1" {SCHEME}'),
        (
            {"kind": "Deployment", "apiVersion": "apps/v1beta1"},
            "converting (v1beta1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
        (
            {"kind": "DeleteOptions", "apiVersion": "autoscaling/v2"},
            "converting (v1.DeleteOptions) to (core.ConfigMap): unknown conversion",
        ),
        (
            {"kind": "PodList"},
            "converting (v1.PodList) to (core.ConfigMap): unknown conversion",
        ),
        ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
    ],
)
def test_another_type_is_refused_as_upstream_words_it(document: dict[str, Any], why: str) -> None:
    assert refusal(document) == why


def test_a_kind_that_is_no_string_has_another_error_after_a_strategic_patch() -> None:
    with pytest.raises(UntypedDocument) as caught:
        type_meta.check(config_map.RESOURCE, {"kind": 5})
    assert caught.value.why.endswith("number into Go struct field .kind of type string")
    assert caught.value.restored == "cannot convert int64 to string"
