"""`kedge why POD --slow` against a server."""

import json
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods.why import slow

Captured = pytest.CaptureFixture[str]
LIMIT = {"limits": {"memory": "64Mi", "cpu": "2"}, "requests": {"cpu": "1"}}


async def test_the_causes_of_a_measured_pod_are_printed(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    main = {"name": "main", "image": "host", "resources": LIMIT}
    await usage.pod("default/web", {"containers": [main]})
    usage.report(0.5)
    assert await slow.show(there, "pod/web", False) == 0
    text = capsys.readouterr().out
    assert text.startswith("Pod:       default/web\nNode:      n1\nMeasured:  30m, until ")
    assert "Container main is near its memory limit: beyond it, it is killed.\n" in text
    assert (
        "  used 64 MiB at most in an hour, 100% of the limit 64Mi\nRaise the memory limit:\n"
        in text
    )
    assert "\n  kubectl -n default patch pod web --subresource resize -p" in text


async def test_a_pod_without_a_cause_says_where_to_look(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    await usage.pod("default/web", {"containers": [{"name": "main", "image": "host"}]})
    usage.report(0.5)
    assert await slow.show(there, "web", False) == 0
    text = capsys.readouterr().out
    assert "Nothing that was measured explains it" in text
    assert "kedge top n1 -o wide --window 1h --statistic max" in text


async def test_programs_get_the_causes_as_json(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    main = {"name": "main", "image": "host", "resources": LIMIT}
    await usage.pod("default/web", {"containers": [main]})
    usage.report(0.5)
    assert await slow.show(there, "web", True) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["cause"], found["subject"]) == ("memory-limit", "main")


async def test_a_pod_that_was_not_measured_is_refused(there: ApiSession, usage: Any) -> None:
    await usage.pod("default/web", {"containers": [{"name": "main", "image": "host"}]})
    with pytest.raises(Failure, match="nothing has been reported of pod"):
        await slow.show(there, "web", False)


async def test_a_pod_without_a_node_is_refused(there: ApiSession, server: Any) -> None:
    body = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "host"}]}}
    await server.post("/api/v1/namespaces/default/pods", body)
    with pytest.raises(Failure, match='"kedge why web -n default" tells why'):
        await slow.show(there, "web", False)
