from typing import Any

from kedge.cluster.report import LONGEST_LINE, MOST_PODS, LogTail, Observation, text

DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "status": {
        "replicas": 1,
        "conditions": [
            {"type": "Available", "status": "False", "reason": "Min", "message": "too few"}
        ],
    },
}


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "restartCount": 2,
                    "state": {"waiting": {"reason": "ErrImagePull", "message": "no\nsuch image"}},
                }
            ],
        },
    }


EVENT: dict[str, Any] = {
    "type": "Warning",
    "reason": "Failed",
    "message": "no such image",
    "lastTimestamp": "2026-01-01T00:00:02Z",
    "involvedObject": {"kind": "Pod", "name": "web-1"},
    "metadata": {},
}


def test_a_report_has_conditions_containers_events_and_logs() -> None:
    earlier = {**EVENT, "reason": "Scheduled", "lastTimestamp": "2026-01-01T00:00:01Z"}
    log = LogTail("web-1", "main", "starting\nfailed\n")
    assert text(Observation([DEPLOYMENT], [pod("web-1")], [EVENT, earlier], [log])) == (
        "Deployment web:\n"
        "  Available=False  Min: too few\n"
        "  replicas 1\n"
        "Pod web-1: Pending on node-1\n"
        "  Ready=False  ContainersNotReady\n"
        "  container main: waiting reason ErrImagePull message no such image, 2 restarts\n"
        "Events:\n"
        "  Warning  Scheduled  pod/web-1  no such image\n"
        "  Warning  Failed  pod/web-1  no such image\n"
        "Log of web-1, container main:\n"
        "  starting\n"
        "  failed"
    )


def test_nothing_gives_an_empty_report() -> None:
    assert text(Observation(logs=[LogTail("web", "main", "")])) == ""


def test_an_object_without_status_says_so() -> None:
    thing = {"kind": "Thing", "metadata": {"name": "a"}}
    assert text(Observation([thing])) == "Thing a:\n  no status"


def test_a_report_is_bounded() -> None:
    many = [pod(f"web-{number}") for number in range(MOST_PODS + 3)]
    long = {**EVENT, "message": "x" * 10_000}
    said = text(Observation([], many, [long]))
    assert "... and 3 more pods" in said
    assert max(map(len, said.splitlines())) <= LONGEST_LINE + 3
