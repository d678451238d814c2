from typing import Any

import pytest

from kedge.api.builtin import schemas
from kedge.api.builtin.zero_values import written


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("storage.v1.CSINode", {}, {"spec": {"drivers": None}}),
        (
            "storage.v1.CSINode",
            {"spec": {"drivers": [{"name": "a", "nodeID": "n"}]}},
            {"spec": {"drivers": [{"name": "a", "nodeID": "n", "topologyKeys": None}]}},
        ),
        ("networking.v1.IngressTLS", {"secretName": "", "hosts": []}, {}),
        ("networking.v1.ParentReference", {"group": "", "name": "a"}, {"name": "a"}),
        ("networking.v1.IngressStatus", {}, {"loadBalancer": {}}),
        ("storage.v1.VolumeAttachmentStatus", {}, {"attached": False}),
        # A pointer to an empty text is not the same as none.
        ("networking.v1.IngressSpec", {"ingressClassName": ""}, {"ingressClassName": ""}),
    ],
)
def test_zero_values_are_written_as_by_go(
    kind: str, content: dict[str, Any], expected: dict[str, Any]
) -> None:
    schema = schemas.schema(schemas.full_name(kind))
    assert {k: v for k, v in written(content, schema).items() if k != "metadata"} == expected
