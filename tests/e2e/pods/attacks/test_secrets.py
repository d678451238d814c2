"""Secrets stay in memory."""

import base64
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

SECRET = "c0rrecth0rsebatterystaple"


@pytest.fixture
def secret(api: Any, namespace: str) -> str:
    data = {"password": base64.b64encode(SECRET.encode()).decode()}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.create(path, {"metadata": {"name": "s"}, "data": data})
    return "s"


def test_a_secret_is_on_no_disk_of_the_node(
    pods: Any, agent: Any, secret: str, eventually: Callable[..., Any]
) -> None:
    """Variables and arguments were in the supervisor's records."""
    reference = {"secretKeyRef": {"name": secret, "key": "password"}}
    probe = {"exec": {"command": ["sh", "-c", "test -n $PASSWORD"]}, "periodSeconds": 1}
    pods.create(
        "holds",
        container={
            "env": [{"name": "PASSWORD", "valueFrom": reference}],
            "envFrom": [{"prefix": "ALL_", "secretRef": {"name": secret}}],
            "command": ["sh", "-c", "sleep 1000; echo $(PASSWORD) > /dev/null"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "readinessProbe": probe,
        },
        volumes=[{"name": "v", "secret": {"secretName": secret}}],
    )
    pods.ready("holds")
    pods.create("ends", "exit 3", container={"env": [{"name": "P", "valueFrom": reference}]})
    pods.when("ends", lambda pod: "CrashLoop" in str(pod["status"]))
    found = subprocess.run(
        ["grep", "-rlI", "-e", SECRET, "--", str(agent.node)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    in_memory = str(agent.node / "memory")
    assert [path for path in found if not path.startswith(in_memory)] == []
    assert all(_filesystem(path) == "tmpfs" for path in found) or os.geteuid() != 0


def _filesystem(path: str) -> str:
    told = subprocess.run(
        ["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True
    )
    return told.stdout.strip()
