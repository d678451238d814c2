"""Everything in this directory is about pods that run: its cluster has a node."""

import base64
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kedge.apiserver import pki
from kedge.supervisor.sockets import sockets_of_nodes

Json = dict[str, Any]

PATIENCE = 20.0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, own_clusters: Any) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("node")
    if given := os.environ.get("KEDGE_E2E_KUBECONFIG"):
        yield own_clusters.given(home, Path(given))
        return
    own = own_clusters.own(home)
    yield own.up("--nodes=1")
    own.down()


EVENT_SECONDS = 3


class Pods:
    """The pods of one namespace: made, waited for, asked what they found."""

    def __init__(self, api: Any, namespace: str, eventually: Callable[..., Any]) -> None:
        self.api = api
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._eventually = eventually

    def create(self, name: str, script: str = "exec sleep 1000", **spec: Any) -> Json:
        """A pod whose one container `main` runs a shell script with the machine's own programs.

        `container` says more about that container, everything else about the pod.
        """
        container = {
            "name": "main",
            "image": "host",
            "command": ["sh", "-c", script],
            **spec.pop("container", {}),
        }
        meta = {"name": name, **spec.pop("metadata", {})}
        full = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
        made: Json = self.api.create(self.path, {"metadata": meta, "spec": full})
        return made

    def get(self, name: str) -> Json:
        pod: Json = self.api.get(f"{self.path}/{name}")
        return pod

    def when(self, name: str, happened: Callable[[Json], Any], within: float = PATIENCE) -> Json:
        """The pod as soon as something has happened to it."""
        last: Json = {}

        def seen() -> bool:
            nonlocal last
            last = self.get(name)
            return bool(happened(last))

        try:
            self._eventually(seen, within)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last['status']}\n{self.events(name)}") from None
        return last

    def ready(self, name: str, within: float = PATIENCE) -> Json:
        return self.when(name, lambda pod: condition(pod, "Ready") == "True", within)

    def over(self, name: str, within: float = PATIENCE) -> Json:
        """The pod when it has ended, well or not."""
        ended = ("Succeeded", "Failed")
        return self.when(name, lambda pod: pod["status"].get("phase") in ended, within)

    def says(self, name: str, script: str, **spec: Any) -> str:
        """What a script finds out in a container that succeeds: its standard output."""
        told = f"({script}\n) > /dev/termination-log 2>&1"
        self.create(name, told, restartPolicy="Never", **spec)
        pod = self.over(name)
        ended = state_of(pod)["terminated"]
        said: str = ended.get("message", "")
        assert pod["status"]["phase"] == "Succeeded", ended
        return said.strip()

    def events(self, name: str, reason: str = "") -> list[str]:
        """The messages of the events about a pod, by reason; without one also the reasons.

        A pod's status may be there before its event, so an event is waited for a little."""
        path = f"/api/v1/namespaces/{self.namespace}/events"

        def messages() -> list[str]:
            found = self.api.get(f"{path}?fieldSelector=involvedObject.name={name}")["items"]
            if not reason:
                return [f"{each['reason']}: {each.get('message', '')}" for each in found]
            return [each.get("message", "") for each in found if each["reason"] == reason]

        try:
            return cast(list[str], self._eventually(messages, EVENT_SECONDS))
        except AssertionError:
            return []

    def delete(self, name: str, **options: Any) -> None:
        self.api.delete(f"{self.path}/{name}", options or None)

    def gone(self, name: str, within: float = PATIENCE) -> None:
        self._eventually(lambda: not self.api.exists(f"{self.path}/{name}"), within)


def condition(pod: Json, type_: str) -> str:
    """The status of one of the pod's conditions."""
    found = pod["status"].get("conditions", ())
    return next((each["status"] for each in found if each["type"] == type_), "")


def status_of(pod: Json, container: str = "main") -> Json:
    """The status of one container."""
    lists = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    everybody = [each for name in lists for each in pod["status"].get(name, ())]
    return next((each for each in everybody if each["name"] == container), {})


def state_of(pod: Json, container: str = "main") -> Json:
    state: Json = status_of(pod, container).get("state", {})
    return state


@pytest.fixture
def pods(api: Any, namespace: str, eventually: Callable[..., Any]) -> Pods:
    return Pods(api, namespace, eventually)


API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PROXY = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class ExtensionPod:
    """An extension server in the pod `sample`, its Service and its APIServices."""

    def __init__(self, pods: Pods, keys: Path, eventually: Callable[..., Any]) -> None:
        self.api = pods.api
        self.pods = pods
        self.namespace = pods.namespace
        self._services = pods.path.replace("/pods", "/services")
        self._eventually = eventually
        self._registered: set[str] = set()
        pki.ensure(keys, (f"sample.{pods.namespace}.svc",))
        self._pem = (keys / "server.crt").read_text() + (keys / "server.key").read_text()
        self._bundle = base64.b64encode((keys / "ca.crt").read_bytes()).decode()

    def run(self, program: Path, **variables: str) -> None:
        """Start the program, which listens at port 8443; returns when it is ready."""
        self._eventually(lambda: self.api.exists(PROXY))
        proxy_ca = self.api.get(PROXY)["data"]["requestheader-client-ca-file"]
        env = {"PEM": self._pem, "PROXY_CA": proxy_ca, "PROGRAM": program.read_text(), **variables}
        container = {
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        }
        meta = {"labels": {"app": "sample"}}
        self.pods.create("sample", 'exec python3 -c "$PROGRAM"', container=container, metadata=meta)
        self.pods.ready("sample")

    def expose(self) -> None:
        spec = {"selector": {"app": "sample"}, "ports": [{"port": 7443, "targetPort": 8443}]}
        self.api.create(self._services, {"metadata": {"name": "sample"}, "spec": spec})

    def register(self, group: str, version: str, **spec: Any) -> None:
        """Let the server answer for a version of a group."""
        name = f"{version}.{group}"
        reference = {"namespace": self.namespace, "name": "sample", "port": 7443}
        order = {"groupPriorityMinimum": 2000, "versionPriority": 200}
        which = {"group": group, "version": version, "service": reference}
        whole = {**which, **order, "caBundle": self._bundle, **spec}
        self.api.create(API_SERVICES, {"metadata": {"name": name}, "spec": whole})
        self._registered.add(name)

    def available(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message of the condition of an APIService."""
        conditions = self.api.get(f"{API_SERVICES}/{name}").get("status", {}).get("conditions", ())
        for each in conditions:
            if each["type"] == "Available":
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def wait(self, name: str, reason: str = "Passed") -> str:
        """Return the message of the condition once it has this reason."""
        self._eventually(lambda: self.available(name)[1] == reason)
        return self.available(name)[2]

    def forget(self) -> None:
        """Delete the APIServices."""
        for name in self._registered:
            if self.api.exists(f"{API_SERVICES}/{name}"):
                self.api.delete(f"{API_SERVICES}/{name}")


@pytest.fixture
def extension_pod(
    pods: Pods, tmp_path: Path, eventually: Callable[..., Any]
) -> Iterator[ExtensionPod]:
    made = ExtensionPod(pods, tmp_path / "pki", eventually)
    yield made
    made.forget()


class Claims:
    """The claims of one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"

    def create(self, name: str, size: str = "8Mi", **spec: Any) -> None:
        resources = {"requests": {"storage": size}}
        full = {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
        self.api.create(self.path, {"metadata": {"name": name}, "spec": full})

    def get(self, name: str) -> Json:
        found: Json = self.api.get(f"{self.path}/{name}")
        return found

    @staticmethod
    def used(name: str) -> Json:
        """The spec of a pod that has a claim at /data."""
        return {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
            "container": {"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
        }


@pytest.fixture
def claims(api: Any, namespace: str) -> Claims:
    return Claims(api, namespace)


@pytest.fixture
def own_pods(eventually: Callable[..., Any]) -> Callable[[Any, str], Pods]:
    """The pods of a cluster that is the test's own."""
    return lambda api, namespace: Pods(api, namespace, eventually)


@pytest.fixture(scope="session")
def about() -> Any:
    """How a pod's document is read."""

    class About:
        condition = staticmethod(condition)
        status = staticmethod(status_of)
        state = staticmethod(state_of)

    return About


@pytest.fixture(scope="session")
def node(api: Any) -> Json:
    """The node that runs the pods."""
    found: Json = api.get("/api/v1/nodes")["items"][0]
    return found


@pytest.fixture
def pod_network(node: Json) -> None:
    """For what takes addresses of pods."""
    how = node["metadata"]["annotations"]["kedge.dev/service-proxy"]
    if how.startswith("none"):
        pytest.skip(f"services: {how}")


@pytest.fixture(scope="session")
def from_machine(node: Json) -> Callable[[str], str]:
    """The address at which programs of the machine find a port of the node: the same for a node of
    root, loopback for that of an ordinary user."""
    is_root = node["metadata"]["labels"].get("kedge.dev/level") == "full"
    return lambda address: address if is_root else "127.0.0.1"


@pytest.fixture(scope="session")
def node_socket(cluster: Any, node: Json) -> Iterator[Callable[[int], socket.socket]]:
    """Makes sockets of a kind in the network namespace of the node."""
    if node["metadata"]["labels"].get("kedge.dev/level") == "full":
        yield lambda kind: socket.socket(socket.AF_INET, kind)
        return
    inside = sockets_of_nodes(str(cluster.home / "state" / "nodes"))
    yield lambda kind: inside.socket(socket.AF_INET, kind)
    inside.close()


@pytest.fixture
def full_level(node: Json) -> None:
    """For what only a node with all means of the kernel can do."""
    if node["metadata"]["labels"].get("kedge.dev/level") != "full":
        pytest.skip("control groups, several users and mounts take a node at the level full")


@pytest.fixture
def mounts(node: Json) -> None:
    """For read-only volumes."""
    if node["metadata"]["labels"].get("kedge.dev/level") == "plain":
        pytest.skip("read-only volumes take mounts")


class Groups:
    """The control groups of pods, of whichever version the machine has."""

    ROOT = Path("/sys/fs/cgroup")

    @property
    def unified(self) -> bool:
        return (self.ROOT / "cgroup.controllers").exists()

    def of(self, pod: Json, controller: str = "memory") -> Path:
        """Where the limits of a whole pod are."""
        root = self.ROOT if self.unified else self.ROOT / controller
        return next((root / "kedge").rglob(f"pod{pod['metadata']['uid']}"))

    def of_container(self, pod: Json, controller: str = "memory") -> Path:
        """Where the limits of a pod's only container are."""
        return next(each for each in self.of(pod, controller).iterdir() if each.is_dir())


@pytest.fixture
def groups(full_level: None) -> Groups:
    return Groups()


class WebServers:
    """Makes pods that run web_server.py. All have the label app=web, and one certificate."""

    def __init__(self, pods: Pods, keys: Path) -> None:
        self._pods = pods
        self._program = (Path(__file__).parent / "web_server.py").read_text()
        pki.ensure(keys, ("web.example.com", f"web.{pods.namespace}.svc"))
        self.certificate, self.key = (
            (keys / name).read_text() for name in ("server.crt", "server.key")
        )
        self.authority = (keys / "ca.crt").read_text()

    def __call__(self, name: str = "web", **metadata: Any) -> Json:
        """A pod, ready."""
        env = {"WHO": name, "PEM": self.certificate + self.key, "PROGRAM": self._program}
        container = {
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "ports": [
                {"containerPort": 8080, "name": "www"},
                {"containerPort": 8443, "name": "tls"},
            ],
            "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        }
        meta = {"labels": {"app": "web"}, **metadata}
        self._pods.create(name, 'exec python3 -c "$PROGRAM"', container=container, metadata=meta)
        return self._pods.ready(name)


@pytest.fixture
def web_server(pods: Pods, tmp_path: Path) -> WebServers:
    return WebServers(pods, tmp_path / "pki")


@pytest.fixture(scope="session")
def own_web_servers() -> type[WebServers]:
    """Web servers in a cluster that is the test's own."""
    return WebServers


@pytest.fixture(scope="session")
def module_pods(eventually: Callable[..., Any]) -> Callable[[Any, str], Pods]:
    """As `own_pods`, for clusters that several tests share."""
    return lambda api, namespace: Pods(api, namespace, eventually)
