from typing import Any

import pytest

from kedge.api.builtin import warnings
from kedge.api.model import Document


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({}, False),
        ({"tokenRequests": [{"audience": "a"}]}, True),
        ({"tokenRequests": [{"audience": "a"}], "serviceAccountTokenInSecrets": False}, False),
    ],
)
def test_tokens_that_may_be_logged_are_warned_of(spec: dict[str, Any], warned: bool) -> None:
    driver = Document(apiVersion="storage.k8s.io/v1", kind="CSIDriver", content={"spec": spec})
    assert bool(list(warnings.csi_driver(driver))) == warned
