"""Errors about documents of another kind."""

import pytest

from kedge.api.core_v1 import config_map
from kedge.apiserver.verbs.unreadable_document import unreadable, unreadable_as, unrecognized

KIND = config_map.RESOURCE


def test_an_unreadable_document_names_its_kind_and_version() -> None:
    error = unreadable(KIND, "why")
    assert error.message == 'ConfigMap in version "v1" cannot be handled as a ConfigMap: why'
    assert unreadable_as(KIND, "v7", "Other", "why").message == (
        'Other in version "v7" cannot be handled as a ConfigMap: why'
    )


@pytest.mark.parametrize(
    ("data", "summary"),
    [
        (b"", "<empty>"),
        (b"{", "{"),
        (b"{" + b"a" * 40, "{" + "a" * 29 + " ..."),
        (b"[]", "5b5d"),
        (b"x" * 31, "78" * 30 + " ..."),
    ],
)
def test_an_unrecognized_body_is_quoted(data: bytes, summary: str) -> None:
    start = "the object provided is unrecognized (must be of type ConfigMap): why"
    assert unrecognized(KIND, "why", data).message == f"{start} ({summary})"
