"""AsyncClusterClient: the objects, logs and commands of a running cluster, for code with an event
loop."""

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from kedge.api.testing.recorded_request import RecordedRequest
from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
from kedge.cli.objects.connection import ApiSession
from kedge.client import login
from kedge.client.client import Client
from kedge.client.controls import ControlsClient
from kedge.client.discovery import Discovery
from kedge.client.kubeconfig import KubeconfigError
from kedge.cluster import command_result, kubectl, libraries, observation, report
from kedge.cluster.command_result import CommandResult
from kedge.cluster.conditions import DELETED, State
from kedge.cluster.controls import AsyncClock, AsyncControls, AsyncFaults, RequestFilter
from kedge.cluster.errors import ClusterError, WaitTimeout
from kedge.cluster.objects import KubeObject, ManifestSource, ObjectApi, ObjectEvent, read
from kedge.cluster.waiting import until, wait_for

if TYPE_CHECKING:
    from kedge.cluster.async_namespace import AsyncClusterNamespace

WAIT_SECONDS: Final = 20.0
"""How long `wait` and `delete` wait if the caller does not say."""
USER_AGENT: Final = "kedge-test"


class AsyncClusterClient:
    """A cluster that a kubeconfig leads to, seen from one namespace.

    Objects are plain dictionaries. A refusal of the server raises `kedge.StatusError`, anything
    else `kedge.ClusterError`. A word such as `deploy/web` names an object as with kubectl.
    """

    def __init__(self, kubeconfig: Path | str, namespace: str = "") -> None:
        """Read the kubeconfig with the first request."""
        self._file = Path(kubeconfig)
        self._given_namespace = namespace
        self._objects: ObjectApi | None = None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of the cluster."""
        return self._file

    @property
    def namespace(self) -> str:
        """The namespace that is used where none is named."""
        return self._api.session.namespace

    async def close(self) -> None:
        """Close the connections to the server."""
        opened, self._objects = self._objects, None
        if opened is not None:
            await opened.session.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def apply(
        self, source: ManifestSource, *, namespace: str = "", force: bool = False
    ) -> list[KubeObject]:
        """Create or change the objects of a manifest by server-side apply, and return them.

        The manifest is an object, several objects, a YAML text, or the path of a file or directory.
        `force` takes over fields that other field managers have set.
        """
        found = await asyncio.to_thread(read, source)
        return [await self._api.apply(each, namespace, force=force) for each in found]

    async def get(self, what: str, name: str = "", *, namespace: str = "") -> KubeObject:
        """Return an object."""
        return await self._api.get(await self._api.ref(what, name, namespace))

    async def list(
        self,
        what: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        all_namespaces: bool = False,
    ) -> list[KubeObject]:
        """Return the objects of a type that the selectors match."""
        resource = await self._api.resource(what)
        within = "" if all_namespaces else self._api.within(resource, namespace)
        return (await self._api.list(resource, within, _selection(labels, fields)))[0]

    async def watch(
        self,
        what: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        all_namespaces: bool = False,
        timeout: float | None = None,
    ) -> AsyncGenerator[ObjectEvent, None]:
        """Yield existing objects as ADDED, then every change, until the timeout."""
        resource = await self._api.resource(what)
        within = "" if all_namespaces else self._api.within(resource, namespace)
        events = self._api.watch(resource, within, _selection(labels, fields))
        async for event in until(events, timeout):
            yield event

    async def patch(
        self,
        what: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        namespace: str = "",
    ) -> KubeObject:
        """Change an object by a merge patch; `subresource="status"` changes its status."""
        ref = await self._api.ref(what, "", namespace)
        return await self._api.patch(ref, patch, subresource)

    async def delete(
        self,
        what: str,
        name: str = "",
        *,
        namespace: str = "",
        grace_seconds: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        """Delete an object; returns when it is gone, or at once if the timeout is 0."""
        ref = await self._api.ref(what, name, namespace)
        await self._api.delete(ref, grace_seconds)
        if timeout:
            await self.wait(what, DELETED, timeout=timeout, name=name, namespace=namespace)

    async def wait(
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
        ref = await self._api.ref(what, name, namespace)
        last = await wait_for(self._api, ref, state, timeout)
        if last.is_reached:
            return last.object or {}
        seen = await observation.of_object(self._api, ref, last.object)
        word = state if isinstance(state, str) else "as the function wants it"
        found = report.text(seen) or "It does not exist."
        raise WaitTimeout(f"{ref} was not {word} within {timeout:g} s.\n{found}")

    async def logs(
        self,
        what: str,
        *,
        container: str = "",
        previous: bool = False,
        tail: int | None = None,
        namespace: str = "",
    ) -> str:
        """Return the log of a container of a pod, or of the first pod of a workload."""
        pod = await self._pod(what, namespace)
        query = {
            "container": container or default_container(pod),
            "previous": "true" if previous else "",
            "tailLines": "" if tail is None else str(tail),
        }
        return await observation.log(self._api, pod, query)

    async def exec(
        self,
        what: str,
        *command: str,
        container: str = "",
        stdin: str = "",
        check: bool = True,
        namespace: str = "",
    ) -> CommandResult:
        """Run a command in a container. With `check`, a code other than 0 raises ClusterError."""
        pod = await self._pod(what, namespace)
        meta = pod["metadata"]
        done = await command_result.run(
            self._api.session,
            meta["namespace"],
            meta["name"],
            command,
            container=container or default_container(pod),
            stdin=stdin,
        )
        if check and done.code:
            said = (done.stderr or done.stdout).strip()
            raise ClusterError(f"{' '.join(command)}: exit code {done.code}: {said}")
        return done

    async def events(self, what: str = "", *, namespace: str = "") -> builtins.list[KubeObject]:
        """Return the events of a namespace, or those about one object, oldest first."""
        ref = await self._api.ref(what, "", namespace) if what else None
        return await observation.events(self._api, ref, namespace or self.namespace)

    async def report(self, *, namespace: str = "") -> str:
        """Return a text about the pods, events and logs of a namespace."""
        return report.text(await observation.of_namespace(self._api, namespace or self.namespace))

    async def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl and return its output."""
        return await asyncio.to_thread(
            kubectl.run, self.kubeconfig, self.namespace, arguments, text=stdin, check=check
        )

    @property
    def clock(self) -> AsyncClock:
        """The time of a cluster that was started for tests."""
        return AsyncClock(self._controls_client)

    @property
    def faults(self) -> AsyncFaults:
        """The rules by which requests to a cluster for tests fail on purpose."""
        return AsyncFaults(self._controls_client, self.namespace)

    async def requests(
        self, since: int | str | datetime = "", **chosen: Unpack[RequestFilter]
    ) -> builtins.list[RecordedRequest]:
        """Return the requests that a cluster for tests has answered, from a number or a time on."""
        return await AsyncControls(self._controls_client).requests(since, **chosen)

    async def assert_quiet(self, seconds: float = 2.0, **chosen: Unpack[RequestFilter]) -> None:
        """Fail if these clients do more in so many seconds than watch and renew leases."""
        await AsyncControls(self._controls_client).assert_quiet(seconds, **chosen)

    async def snapshot(self) -> SnapshotInfo:
        """Remember all objects of a cluster for tests."""
        return await AsyncControls(self._controls_client).snapshot()

    async def restore(self, snapshot: SnapshotInfo | str) -> RestoreResult:
        """Bring the objects of a snapshot back; returns when everybody sees them."""
        return await AsyncControls(self._controls_client).restore(snapshot)

    async def kubernetes_asyncio(self) -> Any:
        """Return an ApiClient of the package kubernetes_asyncio."""
        return await libraries.kubernetes_asyncio(self.kubeconfig)

    async def kr8s(self) -> Any:
        """Return an Api of kr8s.asyncio."""
        return await libraries.kr8s_async(self.kubeconfig, self.namespace)

    def lightkube(self) -> Any:
        """Return an AsyncClient of the package lightkube."""
        return libraries.lightkube_async(self.kubeconfig, self.namespace)

    def kopf(self) -> Any:
        """Return a ConnectionInfo of the package kopf, the answer of a login handler."""
        return libraries.kopf(self.kubeconfig, self.namespace)

    def new_namespace(self, prefix: str = "test") -> "AsyncClusterNamespace":
        """Return a new namespace with a service account; a context creates and deletes it."""
        from kedge.cluster.async_namespace import AsyncClusterNamespace

        return AsyncClusterNamespace(self, prefix)

    def how_to_reach(self) -> str:
        """Return a text for people: how to use the cluster with kubectl."""
        return f"Use it with: kubectl --kubeconfig {self.kubeconfig} get pods"

    @property
    def session(self) -> ApiSession:
        """The connection to the server."""
        return self._api.session

    @property
    def _api(self) -> ObjectApi:
        if self._objects is None:
            self._objects = ObjectApi(_session(self.kubeconfig, self._given_namespace))
        return self._objects

    @property
    def _controls_client(self) -> ControlsClient:
        return ControlsClient(self._api.session.client)

    async def _pod(self, what: str, namespace: str) -> KubeObject:
        ref = await self._api.ref(*(("pod", what) if "/" not in what else (what, "")), namespace)
        pods = await observation.pods_of(self._api, await self._api.get(ref))
        if not pods:
            raise ClusterError(f"{ref} has no pods")
        return pods[0]


def _session(kubeconfig: Path, namespace: str) -> ApiSession:
    try:
        found = login.read([kubeconfig])
        client = Client(found.transport(), user_agent=USER_AGENT)
    except KubeconfigError as error:
        raise ClusterError(str(error)) from error
    return ApiSession(found, client, Discovery(client), namespace)


def _selection(labels: str, fields: str) -> dict[str, str]:
    return {"labelSelector": labels, "fieldSelector": fields}


def default_container(pod: Mapping[str, Any]) -> str:
    """Return the container that people mean if they name none."""
    notes = pod["metadata"].get("annotations") or {}
    first = pod["spec"]["containers"][0]["name"]
    return str(notes.get("kubectl.kubernetes.io/default-container") or first)
