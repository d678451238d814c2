"""Secrets that are taken out of a support bundle."""

import pytest

from kedge.cli.support.redaction import REMOVED, document, text

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "line",
    [
        f"using token {TOKEN} now",
        f"read {KEY} from disk",
        "-----BEGIN PRIVATE KEY-----\nMHcCAQEE (cut)",
        "authorization: Bearer s3cr3ts3cr3t",
        "Authorization: Basic dXNlcjpwYXNz",
        "pull https://me:hunter2pass@registry.example/x",
        "password=hunter2pass",
        'DB_PASSWORD: "hunter2pass"',
        '{"apiKey":"hunter2pass"}',
        "--token=hunter2pass",
        "join with abcdef.0123456789abcdef",
        "the cluster's own-hunter2pass is here",
    ],
)
def test_secrets_are_removed_from_lines(line: str) -> None:
    said = text(line, known=["own-hunter2pass"])
    assert REMOVED in said
    for secret in (
        TOKEN, "MHcCAQEE", "s3cr3t", "dXNlcjpwYXNz", "hunter2pass", "0123456789abcdef",
    ):  # fmt: skip
        assert secret not in said


@pytest.mark.parametrize(
    "line",
    [
        "node ready node=node-1 address=10.244.0.1",
        "automountServiceAccountToken: false",
        "https://127.0.0.1:6443/api?x=1",
        "2026-11-18 05:31:13,656 INFO leading office=kube-scheduler",
        "",
    ],
)
def test_other_lines_stay(line: str) -> None:
    assert text(line) == line


def test_objects_lose_values_but_not_their_shape() -> None:
    pod = {
        "metadata": {
            "name": "web",
            "managedFields": [{}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "note": "password=x1y2z3",
            },
        },
        "spec": {
            "serviceAccountName": "default",
            "containers": [
                {
                    "name": "main",
                    "command": ["server", "--password", "x1y2z3"],
                    "args": ["x1y2z3"],
                    "env": [
                        {"name": "A", "value": "x1y2z3"},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}},
                    ],
                }
            ],
            "volumes": [{"name": "v", "csi": {"volumeAttributes": {"apiToken": "x1y2z3"}}}],
        },
        "status": {"restartCount": 3, "ready": True},
    }
    found = document(pod)
    assert "x1y2z3" not in str(found)
    assert found["metadata"] == {"name": "web", "annotations": {"note": f"password={REMOVED}"}}
    main = found["spec"]["containers"][0]
    assert main["command"] == ["server", REMOVED, REMOVED]
    assert main["env"][1]["valueFrom"]["secretKeyRef"] == {"name": "db", "key": "k"}
    assert found["status"] == pod["status"]
