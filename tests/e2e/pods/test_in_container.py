"""A cluster in a container without further privileges: `make plain` runs these tests there."""

import os
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.testing import images

Json = dict[str, Any]

POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
SERVER = (
    'cd $(mktemp -d) && echo "$HERE" > index.html'
    " && exec python3 -m http.server 8080 --bind $POD_IP"
)

ASKER = """python3 - <<'E'
import os, urllib.request
place = os.environ["WEB_SERVICE_HOST"], os.environ["WEB_SERVICE_PORT"]
print(urllib.request.urlopen("http://%s:%s" % place).read().decode())
E"""


@pytest.fixture(autouse=True)
def plain_level(node: Json) -> None:
    if node["metadata"]["labels"]["kedge.dev/level"] != "plain":
        pytest.skip("the machine allows namespaces: `make plain` runs this in a container")


@pytest.fixture
def services(node: Json) -> str:
    """The first bytes of the addresses at which pods find cluster IPs."""
    said: str = node["metadata"]["annotations"]["kedge.dev/service-proxy"]
    return said.split()[1].removesuffix(".0.0/16:")


def server(pods: Any, name: str, port: int = 8080) -> Json:
    """A pod with a web server at its own address."""
    container = {
        "env": [POD_IP, {"name": "HERE", "value": name}],
        "ports": [{"containerPort": port}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    pods.create(name, SERVER, container=container, metadata={"labels": {"app": "web"}})
    ready: Json = pods.ready(name, 60)
    return ready


def test_pods_with_one_mount_path_have_their_own_volumes(
    api: Any, namespace: str, pods: Any, about: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    api.create(f"{core}/configmaps", {"metadata": {"name": "c"}, "data": {"key": "old"}})
    place = f"/kedge-{namespace}/config"
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "file").write_text("whole\n")
    volumes = [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "machine", "hostPath": {"path": str(tmp_path)}},
    ]
    mounts = [
        {"name": "config", "mountPath": place},
        {"name": "scratch", "mountPath": f"{place}-scratch"},
        {"name": "machine", "mountPath": f"{place}-part", "subPath": "part"},
    ]
    script = (
        f"(cat {place}-part/file; echo $HOSTNAME > {place}-scratch/name; cat {place}-scratch/name;"
        f" until grep new {place}/key; do sleep 0.1; done; ls {place}) > /dev/termination-log"
    )
    for name in ("one", "two"):
        spec = {"volumes": volumes, "container": {"volumeMounts": mounts}}
        pods.create(name, script, restartPolicy="Never", **spec)
        pods.when(name, lambda pod: pod["status"].get("phase") == "Running", 60)
    assert os.path.islink(place)
    api.merge(f"{core}/configmaps/c", {"data": {"key": "new", "more": "x"}})
    for name in ("one", "two"):
        ended = about.state(pods.over(name, 60))["terminated"]
        assert ended["message"].split() == ["whole", name, "new", "key", "more"]
    # The links of ended containers are gone, with the directories that were made for them.
    eventually(lambda: not os.path.lexists(os.path.dirname(place)), 60)


def test_services_lead_to_pods_with_the_same_port(
    api: Any, namespace: str, pods: Any, services: str, eventually: Callable[..., Any]
) -> None:
    addresses = {server(pods, name)["status"]["podIP"] for name in ("one", "two")}
    assert len(addresses) == 2
    spec = {"selector": {"app": "web"}, "type": "NodePort"}
    ports = [{"port": 80, "targetPort": 8080}]
    path = f"/api/v1/namespaces/{namespace}/services"
    made = api.create(path, {"metadata": {"name": "web"}, "spec": {**spec, "ports": ports}})
    here = made["spec"]["clusterIP"].replace("10.96", services, 1)
    node_port = made["spec"]["ports"][0]["nodePort"]
    for url in (f"http://{here}", f"http://127.0.0.1:{node_port}"):
        found: set[str] = set()

        def ask(url: str = url, found: set[str] = found) -> bool:
            found.add(_content(url))
            return found >= {"one", "two"}

        eventually(ask, 60)
    name, dns = f"web.{namespace}.svc.cluster.local", f"{services}.0.10"
    eventually(lambda: _resolved(name, dns) == here, 60)
    assert pods.says("asker", ASKER) in ("one", "two")


def test_ports_that_collide_are_told(pods: Any, eventually: Callable[..., Any]) -> None:
    for name in ("one", "two"):
        pods.create(name, container={"ports": [{"containerPort": 7777}]})
        pods.ready(name, 60)

    def told() -> bool:
        said = " ".join(pods.events("two", "NotEnforced"))
        return "port 7777 (TCP) is also declared by the pod" in said

    eventually(told, 60)


def test_a_path_that_the_machine_has_is_refused_with_advice(
    pods: Any, eventually: Callable[..., Any]
) -> None:
    mounts = [{"name": "v", "mountPath": "/usr"}]
    volumes = [{"name": "v", "emptyDir": {}}]
    pods.create("taken", volumes=volumes, container={"volumeMounts": mounts})

    def told() -> bool:
        said = " ".join(pods.events("taken", "Failed"))
        return '"/usr" is not mounted' in said and "--cap-add=SYS_ADMIN" in said

    eventually(told, 60)


def test_an_empty_directory_of_the_machine_gives_way(
    pods: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    place.chmod(0o755)
    mounts = [{"name": "v", "mountPath": str(place)}]
    script = f"echo here > {place}/file; cat {place}/file"
    volumes = [{"name": "v", "emptyDir": {}}]
    said = pods.says("empty", script, volumes=volumes, container={"volumeMounts": mounts})
    assert said == "here"
    eventually(lambda: place.is_dir() and not place.is_symlink(), 60)
    assert list(place.iterdir()) == []


def test_a_container_of_an_image_has_its_volumes_and_names(
    api: Any, namespace: str, cluster: Any, pods: Any, services: str, tmp_path: Path
) -> None:
    image = _load_shell(cluster, f"test/{namespace}:1", tmp_path)
    core = f"/api/v1/namespaces/{namespace}"
    api.create(f"{core}/configmaps", {"metadata": {"name": "c"}, "data": {"key": "old"}})
    container = {
        "image": image,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config"},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
    }
    volumes = [{"name": "config", "configMap": {"name": "c"}}, {"name": "scratch", "emptyDir": {}}]
    script = (
        "while read line; do echo $line; done < /etc/resolv.conf; echo mine > /scratch/file;"
        " until read key < /etc/config/key; [ $key = new ]; do sleep 0.1; done; echo $key"
    )
    script = f"({script}) > /dev/termination-log"
    more = {"volumes": volumes, "restartPolicy": "Never"}
    pods.create("imaged", script, container=container, **more)
    pods.when("imaged", lambda pod: pod["status"].get("phase") == "Running", 60)
    api.merge(f"{core}/configmaps/c", {"data": {"key": "new\n"}})
    ended = pods.over("imaged", 60)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert f"nameserver {services}.0.10" in ended["message"]
    assert ended["message"].endswith("new\n")


def test_containers_of_an_image_share_and_keep_what_they_write(
    api: Any, namespace: str, cluster: Any, pods: Any, tmp_path: Path
) -> None:
    image = _load_shell(cluster, f"test/{namespace}:2", tmp_path)
    claim = {
        "metadata": {"name": "kept"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    api.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
    mounts = [{"name": "shared", "mountPath": "/shared"}, {"name": "kept", "mountPath": "/kept"}]
    volumes = [
        {"name": "shared", "emptyDir": {}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
    ]

    def container(name: str, script: str) -> Json:
        command = ["/bin/sh", "-c", script]
        return {"name": name, "image": image, "command": command, "volumeMounts": mounts}

    def await_line(path: str, line: str) -> str:
        return f'until read x < {path} && [ "$x" = {line} ]; do sleep 0.05; done 2>/dev/null'

    # The first start of the asker fails: it finds its emptyDir as it was at the second one.
    asker = (
        "if read x < /shared/failed; then :; else echo once > /shared/failed; exit 1; fi;"
        f" {await_line('/shared/prepared', 'ready')}; echo question > /shared/question;"
        f" {await_line('/shared/answer', '42')}; echo saved > /kept/file"
    )
    answerer = f"{await_line('/shared/question', 'question')}; echo 42 > /shared/answer"
    spec = {
        "restartPolicy": "OnFailure",
        "initContainers": [container("prepare", "echo ready > /shared/prepared")],
        "containers": [container("asker", asker), container("answerer", answerer)],
        "volumes": volumes,
    }
    core = f"/api/v1/namespaces/{namespace}/pods"
    api.create(core, {"metadata": {"name": "sharing"}, "spec": spec})
    assert pods.over("sharing", 90)["status"]["phase"] == "Succeeded"
    api.delete(f"{core}/sharing")
    later = {
        "restartPolicy": "Never",
        "containers": [container("reader", "read x < /kept/file; echo $x > /dev/termination-log")],
        "volumes": volumes,
    }
    api.create(core, {"metadata": {"name": "later"}, "spec": later})
    ended = pods.over("later", 60)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "saved\n"


def _load_shell(cluster: Any, name: str, tmp_path: Path) -> str:
    """Load an image with a shell, and return its name."""
    programs = ("/bin/sh", "/bin/sleep")
    shell = [*programs, *(each for program in programs for each in _libraries(program))]
    files = {path.lstrip("/"): images.program(Path(path).resolve().read_bytes()) for path in shell}
    archive = images.docker_archive(tmp_path / "i.tar", images.build(files), name)
    loaded = [sys.executable, "-m", "kedge", "image", "load", str(archive)]
    state = str(cluster.home / "state")
    subprocess.run([*loaded, "--state", state], check=True, capture_output=True)
    return name


def _content(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
            return text.strip()
    except OSError:
        return ""


def _resolved(name: str, server: str) -> str:
    """The first address of a name at a DNS server."""
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    query = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(10)
        asking.sendto(query, (server, 53))
        try:
            return socket.inet_ntoa(asking.recv(4096)[-4:])
        except OSError:
            return ""


def _libraries(program: str) -> list[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for word in said.split() if word.startswith("/")]
