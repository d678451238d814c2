"""ClusterClient: AsyncClusterClient for code without an event loop."""

import builtins
from collections.abc import Coroutine, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from kedge.api.testing.recorded_request import RecordedRequest
from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
from kedge.cluster import libraries
from kedge.cluster.async_client import WAIT_SECONDS, AsyncClusterClient
from kedge.cluster.blocking_controls import BlockingClock, BlockingFaults
from kedge.cluster.command_result import CommandResult
from kedge.cluster.conditions import State
from kedge.cluster.controls import RequestFilter
from kedge.cluster.loop_thread import loop_thread
from kedge.cluster.objects import KubeObject, ManifestSource, ObjectEvent

if TYPE_CHECKING:
    from kedge.cluster.namespace import ClusterNamespace

T = TypeVar("T")
A = TypeVar("A", bound=AsyncClusterClient)


class BlockingClient(Generic[A]):
    """The methods of an asynchronous client, which return when the result is there."""

    def __init__(self, asynchronous: A) -> None:
        self._async = asynchronous

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of the cluster."""
        return self._async.kubeconfig

    @property
    def namespace(self) -> str:
        """The namespace that is used where none is named."""
        return self._async.namespace

    def __enter__(self) -> Self:
        self._run(self._async.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._run(self._async.close())

    def apply(
        self, source: ManifestSource, *, namespace: str = "", force: bool = False
    ) -> list[KubeObject]:
        """Create or change the objects of a manifest by server-side apply, and return them.

        The manifest is an object, several objects, a YAML text, or the path of a file or directory.
        `force` takes over fields that other field managers have set.
        """
        return self._run(self._async.apply(source, namespace=namespace, force=force))

    def get(self, what: str, name: str = "", *, namespace: str = "") -> KubeObject:
        """Return an object."""
        return self._run(self._async.get(what, name, namespace=namespace))

    def list(
        self,
        what: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        all_namespaces: bool = False,
    ) -> list[KubeObject]:
        """Return the objects of a type that the selectors match."""
        return self._run(
            self._async.list(
                what,
                labels=labels,
                fields=fields,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def watch(
        self,
        what: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        all_namespaces: bool = False,
        timeout: float | None = None,
    ) -> Iterator[ObjectEvent]:
        """Yield existing objects as ADDED, then every change, until the timeout."""
        events = self._async.watch(
            what,
            labels=labels,
            fields=fields,
            namespace=namespace,
            all_namespaces=all_namespaces,
            timeout=timeout,
        )
        return loop_thread().iterate(events)

    def patch(
        self,
        what: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        namespace: str = "",
    ) -> KubeObject:
        """Change an object by a merge patch; `subresource="status"` changes its status."""
        return self._run(
            self._async.patch(what, patch, subresource=subresource, namespace=namespace)
        )

    def delete(
        self,
        what: str,
        name: str = "",
        *,
        namespace: str = "",
        grace_seconds: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        """Delete an object; returns when it is gone, or at once if the timeout is 0."""
        self._run(
            self._async.delete(
                what, name, namespace=namespace, grace_seconds=grace_seconds, timeout=timeout
            )
        )

    def wait(
        self,
        what: str,
        state: State,
        *,
        timeout: float = WAIT_SECONDS,
        name: str = "",
        namespace: str = "",
    ) -> KubeObject:
        """Wait until an object has a condition, a phase, or fulfils a function; return the object.

        Raises WaitTimeout, which is also a TimeoutError. Its message has the conditions, events and
        last log lines that were seen.
        """
        return self._run(
            self._async.wait(what, state, timeout=timeout, name=name, namespace=namespace)
        )

    def logs(
        self,
        what: str,
        *,
        container: str = "",
        previous: bool = False,
        tail: int | None = None,
        namespace: str = "",
    ) -> str:
        """Return the log of a container of a pod, or of the first pod of a workload."""
        return self._run(
            self._async.logs(
                what, container=container, previous=previous, tail=tail, namespace=namespace
            )
        )

    def exec(
        self,
        what: str,
        *command: str,
        container: str = "",
        stdin: str = "",
        check: bool = True,
        namespace: str = "",
    ) -> CommandResult:
        """Run a command in a container. With `check`, a code other than 0 raises ClusterError."""
        return self._run(
            self._async.exec(
                what,
                *command,
                container=container,
                stdin=stdin,
                check=check,
                namespace=namespace,
            )
        )

    def events(self, what: str = "", *, namespace: str = "") -> builtins.list[KubeObject]:
        """Return the events of a namespace, or those about one object, oldest first."""
        return self._run(self._async.events(what, namespace=namespace))

    def report(self, *, namespace: str = "") -> str:
        """Return a text about the pods, events and logs of a namespace."""
        return self._run(self._async.report(namespace=namespace))

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl and return its output."""
        return self._run(self._async.kubectl(*arguments, stdin=stdin, check=check))

    @property
    def clock(self) -> BlockingClock:
        """The time of a cluster that was started for tests."""
        return BlockingClock(self._async.clock)

    @property
    def faults(self) -> BlockingFaults:
        """The rules by which requests to a cluster for tests fail on purpose."""
        return BlockingFaults(self._async.faults)

    def requests(
        self, since: int | str | datetime = "", **chosen: Unpack[RequestFilter]
    ) -> builtins.list[RecordedRequest]:
        """Return the requests that a cluster for tests has answered, from a number or a time on."""
        return self._run(self._async.requests(since, **chosen))

    def assert_quiet(self, seconds: float = 2.0, **chosen: Unpack[RequestFilter]) -> None:
        """Fail if these clients do more in so many seconds than watch and renew leases."""
        self._run(self._async.assert_quiet(seconds, **chosen))

    def snapshot(self) -> SnapshotInfo:
        """Remember all objects of a cluster for tests."""
        return self._run(self._async.snapshot())

    def restore(self, snapshot: SnapshotInfo | str) -> RestoreResult:
        """Bring the objects of a snapshot back; returns when everybody sees them."""
        return self._run(self._async.restore(snapshot))

    def kubernetes(self) -> Any:
        """Return an ApiClient of the package kubernetes."""
        return libraries.kubernetes(self.kubeconfig)

    def kr8s(self) -> Any:
        """Return an Api of the package kr8s."""
        return libraries.kr8s(self.kubeconfig, self.namespace)

    def lightkube(self) -> Any:
        """Return a Client of the package lightkube."""
        return libraries.lightkube(self.kubeconfig, self.namespace)

    def kopf(self) -> Any:
        """Return a ConnectionInfo of the package kopf, the answer of a login handler."""
        return libraries.kopf(self.kubeconfig, self.namespace)

    def new_namespace(self, prefix: str = "test") -> "ClusterNamespace":
        """Return a new namespace with a service account; a context creates and deletes it."""
        from kedge.cluster.namespace import ClusterNamespace

        return ClusterNamespace(self._async.new_namespace(prefix))

    def how_to_reach(self) -> str:
        """Return a text for people: how to use the cluster with kubectl."""
        return self._async.how_to_reach()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return loop_thread().run(work)


class ClusterClient(BlockingClient[AsyncClusterClient]):
    """A cluster that a kubeconfig leads to, seen from one namespace.

    Each method does what the method of AsyncClusterClient with its name does.
    """

    def __init__(self, kubeconfig: Path | str, namespace: str = "") -> None:
        super().__init__(AsyncClusterClient(kubeconfig, namespace))
