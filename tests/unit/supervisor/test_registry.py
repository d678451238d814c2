import json
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import USERNS, of_level
from kedge.supervisor.registry import LOST, Registry, published
from kedge.supervisor.server import EventFeed, RequestError, UnknownIdError


class Feed(EventFeed):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def send(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def container_record(**changed: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "sandbox": "s1",
        "name": "web",
        "about": {},
        "log": "",
        "state": "created",
        "created_at": 2,
        "pid": 0,
        "outer_pid": 0,
        "boot": "",
        "began": 0,
        "cgroup": "",
        "shortfalls": [],
        **changed,
    }


def container_spec(**changed: Any) -> Any:
    nothing: Any = {"lowers": [], "hidden": [], "concealed": ["/c"], "shown": [], "seccomp": ""}
    return nothing | changed


def test_specs_share_equal_parts(registry: Registry) -> None:
    records = [container_record(id="c1"), container_record(id="c2", about={"name": "x"})]
    one, two = (registry.add_container(each, container_spec()) for each in records)
    assert two.spec == container_spec()
    assert one.spec["concealed"] is two.spec["concealed"]


def sandbox_record(**changed: Any) -> dict[str, Any]:
    return {
        "id": "s1",
        "name": "pod",
        "about": {"uid": "u1"},
        "shared": {},
        "created_at": 1,
        "ready": True,
        "ips": [],
        "above": [],
        "pause": "",
        **changed,
    }


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def registry(tmp_path: Path, event_loop: EventLoop, feed: Feed) -> Registry:
    launcher: Any = None
    host = RuntimeHost(
        event_loop,
        launcher,
        root=str(tmp_path / "root"),
        outer=-1,
        capabilities=of_level(USERNS),
        groups=Cgroups([]),
    )
    return Registry(str(tmp_path), host, feed)


def call(**message: str) -> Any:
    return type("Call", (), {"message": message})


def test_things_are_found_by_their_id(registry: Registry) -> None:
    sandbox = registry.add_sandbox(sandbox_record())
    container = registry.add_container(container_record(), container_spec())
    assert registry.sandbox(call(sandbox="s1")) is sandbox
    assert registry.container(call(container="c1")) is container
    assert registry.containers_of(sandbox) == [container]
    with pytest.raises(UnknownIdError, match="there is no sandbox s2"):
        registry.sandbox(call(sandbox="s2"))
    with pytest.raises(UnknownIdError, match="there is no container c2"):
        registry.container(call(container="c2"))
    with pytest.raises(RequestError, match="container c1 is not running: it is created"):
        registry.running(call(container="c1"))


def test_a_sandbox_that_is_not_ready_is_refused(registry: Registry) -> None:
    registry.add_sandbox(sandbox_record(ready=False))
    with pytest.raises(RequestError, match="sandbox s1 is not ready"):
        registry.ready_sandbox("s1")


def test_variables_and_arguments_are_not_on_disk(registry: Registry, tmp_path: Path) -> None:
    registry.add_container(container_record(), container_spec(env=["PASSWORD=secret"]))
    assert "secret" not in (tmp_path / "containers/c1/record.jsonl").read_text()


def test_containers_of_an_earlier_supervisor_have_ended(
    registry: Registry, tmp_path: Path, feed: Feed
) -> None:
    for kind, record in (
        ("sandboxes", sandbox_record()),
        ("containers", container_record(state="running")),
    ):
        (tmp_path / kind / record["id"]).mkdir()
        (tmp_path / kind / record["id"] / "record.jsonl").write_text(json.dumps(record))
    registry.recover()
    record = registry.containers["c1"].record
    assert (record["state"], record["exit_code"], record["message"]) == ("exited", 137, LOST)
    assert not registry.sandboxes["s1"].record["ready"]
    assert not registry.containers["c1"].has_spec
    assert [event["type"] for event in feed.events] == ["exited"]


def test_secrets_in_records_of_earlier_releases_are_removed(
    registry: Registry, tmp_path: Path
) -> None:
    old = container_record(state="exited", plan={"log": "/l", "env": ["A=secret"]})
    old["about"] = {"env": ["A=secret"], "image": "host"}
    (tmp_path / "containers/c1").mkdir()
    (tmp_path / "containers/c1/record.jsonl").write_text(json.dumps(old))
    registry.recover()
    assert "secret" not in (tmp_path / "containers/c1/record.jsonl").read_text()
    assert registry.containers["c1"].record["log"] == "/l"


def test_a_discarded_container_is_announced_with_its_pod(
    registry: Registry, tmp_path: Path, feed: Feed
) -> None:
    registry.add_sandbox(sandbox_record())
    container = registry.add_container(container_record(), container_spec())
    registry.discard_container(container)
    registry.discard_container(container)
    assert feed.events == [{"container": "c1", "sandbox": "s1", "pod_uid": "u1", "type": "removed"}]
    assert [path.name for path in (tmp_path / "trash").iterdir()] == ["c1"]


def test_agents_see_the_pid_of_the_machine() -> None:
    record = {"id": "c1", "pid": 2, "outer_pid": 700, "log": "/l", "shared": {}}
    assert published(record) == {"id": "c1", "pid": 700}
