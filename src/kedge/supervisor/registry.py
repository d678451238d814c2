"""The sandboxes and containers of a supervisor, with their records on disk."""

from typing import Any, Final

from kedge.supervisor.alike_specs import AlikeSpecs, with_shared_names
from kedge.supervisor.container import container as life
from kedge.supervisor.container.container import ContainerProcess
from kedge.supervisor.files.trash import Trash
from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kernel import processes
from kedge.supervisor.records import Records
from kedge.supervisor.sandbox.sandbox import Sandbox
from kedge.supervisor.server import AgentRequest, EventFeed, RequestError, UnknownIdError
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]

LOST: Final = "its supervisor ended, and the container with it"


class Registry:
    """Finds sandboxes and containers by id, and adds and removes them."""

    def __init__(self, directory: str, host: RuntimeHost, feed: EventFeed) -> None:
        self.host = host
        self._directory = directory
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, ContainerProcess] = {}
        self._feed = feed
        self._sandbox_records = Records(directory, "sandboxes")
        self._container_records = Records(directory, "containers")
        self._alike_specs = AlikeSpecs()
        self.trash = Trash(self._container_records.trash, host.loop)

    def recover(self) -> None:
        """Load the records of an earlier supervisor, and end what is left of its containers."""
        for record in self._sandbox_records.load():
            self._hold_sandbox(record)
        for record in self._container_records.load():
            if _drop_secrets(record):
                self._container_records.rewrite(record)
            self._end_lost(self._hold_container(record, None))
        for sandbox in self.sandboxes.values():
            sandbox.close(do_nothing)
        if self.host.plain is not None:
            self.host.plain.release_below(self._directory)
            self.host.plain.settle_left(self._container_records.home)

    def _end_lost(self, container: ContainerProcess) -> None:
        """End the processes of a container of an earlier supervisor, and record its end."""
        record = container.record
        if record["state"] == life.EXITED and not record["pid"]:
            return
        if record["pid"] and record["boot"] == self.host.boot:
            plain = not self.host.isolated
            processes.kill_remains(record["pid"], record["began"], with_session=plain)
        container.sweep()
        if record["state"] == life.RUNNING or record.get("begun"):
            container.end(life.UNKNOWN, "ContainerStatusUnknown", LOST)

    def add_sandbox(self, record: Document) -> Sandbox:
        """Save a new sandbox and return it."""
        record.update(with_shared_names(record))
        self._sandbox_records.make(record["id"])
        self._sandbox_records.save(record)
        return self._hold_sandbox(record)

    def add_container(self, record: Document, spec: ContainerSpec) -> ContainerProcess:
        """Save a new container and return it. The spec is not saved."""
        self._container_records.make(record["id"], "upper", "work")
        self._container_records.save(record)
        record.update(with_shared_names(record))
        spec = with_shared_names(spec)
        self._alike_specs.share(spec)
        return self._hold_container(record, spec)

    def _hold_sandbox(self, record: Document) -> Sandbox:
        sandbox = Sandbox(record, self.host, self._sandbox_records)
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    def _hold_container(self, record: Document, spec: ContainerSpec | None) -> ContainerProcess:
        records = self._container_records
        container = ContainerProcess(record, spec, self.host, records=records, publish=self.publish)
        self.containers[container.id] = container
        return container

    def sandbox(self, call: AgentRequest) -> Sandbox:
        """Return the sandbox that a request names; raises UnknownIdError."""
        found = self.sandboxes.get(call.message["sandbox"])
        if found is None:
            raise UnknownIdError(f"there is no sandbox {call.message['sandbox']}")
        return found

    def ready_sandbox(self, identity: str) -> Sandbox:
        """Return a sandbox; raises RequestError unless it is ready."""
        sandbox = self.sandboxes[identity]
        if not sandbox.record["ready"]:
            raise RequestError(f"sandbox {sandbox.id} is not ready")
        return sandbox

    def container(self, call: AgentRequest) -> ContainerProcess:
        """Return the container that a request names; raises UnknownIdError."""
        found = self.containers.get(call.message["container"])
        if found is None:
            raise UnknownIdError(f"there is no container {call.message['container']}")
        return found

    def running(self, call: AgentRequest) -> ContainerProcess:
        """Return the container that a request names; raises unless it is running."""
        container = self.container(call)
        if container.state != life.RUNNING:
            raise RequestError(f"container {container.id} is not running: it is {container.state}")
        return container

    def containers_of(self, sandbox: Sandbox) -> list[ContainerProcess]:
        """Return the containers of a sandbox."""
        return [each for each in self.containers.values() if each.record["sandbox"] == sandbox.id]

    def discard_sandbox(self, sandbox: Sandbox) -> None:
        """Forget a sandbox and its files."""
        if self.sandboxes.pop(sandbox.id, None) is not None:
            self._sandbox_records.discard(sandbox.id)
            self.trash.empty_soon()

    def discard_container(self, container: ContainerProcess) -> None:
        """Forget a container and its files."""
        if self.containers.pop(container.id, None) is None:
            return
        container.remove_log()
        self._container_records.discard(container.id)
        self.trash.empty_soon()
        self.publish(container.record, "removed")

    def publish(self, record: Document, type_: str) -> None:
        """Send an event about a container to the agents that watch."""
        sandbox = self.sandboxes.get(record["sandbox"])
        uid = sandbox.record["about"].get("uid", "") if sandbox else ""
        event = {"container": record["id"], "sandbox": record["sandbox"]}
        self._feed.send({**event, "pod_uid": uid, "type": type_})


def published(record: Document) -> Document:
    """Return a record without the fields that agents do not need."""
    shown = {name: value for name, value in record.items() if name not in ("log", "shared")}
    if "outer_pid" in shown:
        shown["pid"] = shown.pop("outer_pid")
    return shown


def do_nothing() -> None:
    """A callback for callers that do not wait."""


def _drop_secrets(record: Document) -> bool:
    """Remove variables and arguments, which earlier releases wrote, from a record; returns whether
    there were any."""
    plan = record.pop("plan", None)
    if plan is None:
        return False
    record["log"] = plan["log"]
    for name in ("env", "command", "args"):
        record["about"].pop(name, None)
    return True
