"""Secrets, described without giving them away."""

from datetime import UTC, datetime

from kedge.cli.descriptions.kinds import describe
from kedge.cli.descriptions.parts import LAST_APPLIED, RelatedObjects


def test_a_secret_is_told_by_its_size() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": {LAST_APPLIED: "hunter2"}},
        "data": {"password": "aHVudGVyMg==", "broken": "x"},
        "type": "Opaque",
    }
    told = describe(secret, RelatedObjects(now=datetime(2030, 1, 1, tzinfo=UTC)))
    assert "password:  7 bytes" in told
    assert "broken:    <not base64>" in told
    assert "hunter2" not in told
    assert "aHVudGVyMg" not in told
