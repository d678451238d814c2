"""Resource claims: a real driver in a process of its own; driver and agent die at bad moments."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kedge.cli.cluster import process
from kedge.deviceplugin import library, methods, pod_resources
from kedge.deviceplugin.messages import Empty

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, OwnCluster
    from tests.e2e.pods.conftest import Pods

Json = dict[str, Any]

DRIVER = "gadget.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PREPARES = "FailedPrepareDynamicResources"


class Gadgets:
    """A cluster whose one node has a directory for drivers, and the driver in gadget_driver.py."""

    def __init__(self, own: OwnCluster, directory: Path) -> None:
        self.own = own
        self.kubelet = own.home / "kubelet"
        self.directory = directory
        self.flags = (
            "--nodes=1",
            f"--device-plugin-dir={self.kubelet}",
            # An agent that is killed stays away until it is brought back.
            "--restart=never",
        )
        self.api: Api = own.up(*self.flags).api
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            str(Path(__file__).with_name("gadget_driver.py")),
            str(self.directory),
            str(self.kubelet),
        ]
        environment = {**os.environ, "KUBECONFIG": str(self.own.kubeconfig)}
        with open(self.directory / "log", "ab") as log:
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        """As if it had crashed: its sockets stay."""
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()
            self._driver = None

    def published(self) -> list[str]:
        found = self.api.get(SLICES)["items"]
        return sorted(device["name"] for each in found for device in each["spec"]["devices"])

    def behave(self, name: str, content: str = "x") -> None:
        (self.directory / name).write_text(content)

    def behave_well(self) -> None:
        for name in ("refuse", "slow", "sick"):
            (self.directory / name).unlink(missing_ok=True)

    def calls(self, claim: str) -> list[str]:
        return [each["call"] for each in self.entries() if each["claim"] == claim]

    def entries(self) -> list[Json]:
        file = self.directory / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def left(self, uid: str) -> list[str]:
        """What there is of a claim: the driver's own file, and the CDI spec."""
        files = [*(self.directory / "prepared").iterdir(), *(self.kubelet / "cdi").iterdir()]
        return [each.name for each in files if uid in each.name]

    def kill_agent(self) -> None:
        agent = process.running(self.own.state / "nodes" / "node-1", "node")
        assert agent is not None
        os.kill(agent.pid, signal.SIGKILL)

    def revive_agent(self) -> None:
        self.own.up(*self.flags)

    def revive(self) -> None:
        """Start what a test that failed has left dead."""
        if self._driver is None:
            self.start()
        if process.running(self.own.state / "nodes" / "node-1", "node") is None:
            self.revive_agent()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, own_clusters: Any) -> Iterator[Gadgets]:
    if "KEDGE_E2E_KUBECONFIG" in os.environ:
        pytest.skip("the drivers of a cluster elsewhere are somebody else's")
    own = own_clusters.own(tmp_path_factory.mktemp("drivers"))
    made = Gadgets(own, tmp_path_factory.mktemp("gadgets"))
    made.start()
    yield made
    made.kill()
    own.down()


@pytest.fixture(scope="module")
def api(home: Gadgets) -> Api:
    return home.api


@pytest.fixture(autouse=True)
def well(home: Gadgets, eventually: Callable[..., Any]) -> Iterator[None]:
    home.revive()
    eventually(lambda: home.published() == ["g-0", "g-1", "g-2"])
    yield
    home.behave_well()


class Claimant:
    """Creates claims that are allocated, and pods that use them."""

    def __init__(self, api: Api, pods: Pods) -> None:
        self.api = api
        self.pods = pods
        self.path = CLAIMS.format(pods.namespace)

    def claim(self, name: str, **devices: str) -> str:
        """Create a claim with a request for each device; return its uid."""
        requests = [{"name": each, "exactly": {"deviceClassName": "gadgets"}} for each in devices]
        made = self.api.create(
            self.path, {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        )
        results = [
            {"request": request, "driver": DRIVER, "pool": "node-1", "device": device}
            for request, device in devices.items()
        ]
        self._status(name, {"allocation": {"devices": {"results": results}}})
        uid: str = made["metadata"]["uid"]
        return uid

    def pod(self, name: str, claim: str, script: str = "exec sleep 1000", **spec: Any) -> None:
        """Create a pod that is bound to the node, and reserve the claim for it."""
        container = {"resources": {"claims": [{"name": "g"}]}}
        spec.setdefault("container", container)
        spec.setdefault("terminationGracePeriodSeconds", 0)
        claims = [{"name": "g", "resourceClaimName": claim}]
        made = self.pods.create(name, script, resourceClaims=claims, nodeName="node-1", **spec)
        entry = {"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}
        known = self.api.get(f"{self.path}/{claim}")["status"].get("reservedFor", [])
        if entry["uid"] not in [each["uid"] for each in known]:
            self._status(claim, {"reservedFor": [*known, entry]})

    def _status(self, name: str, status: Json) -> None:
        self.api.merge(f"{self.path}/{name}/status", {"status": status})


@pytest.fixture
def claimant(api: Api, pods: Pods) -> Claimant:
    return Claimant(api, pods)


def test_containers_get_the_devices_of_their_requests(
    claimant: Claimant, pods: Pods, about: Any
) -> None:
    claimant.claim("two", a="g-0", b="g-1")
    claimant.pod(
        "p",
        "two",
        "(echo main $GADGET_A-$GADGET_B; ls /gadgets) > /dev/termination-log",
        container={"resources": {"claims": [{"name": "g", "request": "b"}]}},
        restartPolicy="Never",
    )
    said = about.state(pods.over("p"))["terminated"]["message"]
    assert said.split() == ["main", "-g-1", "g-1"]


@pytest.fixture
def resource(api: Api) -> Iterator[str]:
    """The extended resource of a class of all gadgets."""
    name = "example.com/gadget"
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": name}
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    api.create(classes, {"metadata": {"name": "countable"}, "spec": spec})
    yield name
    api.delete(f"{classes}/countable")


def test_an_extended_resource_is_met_by_devices_of_a_class(
    home: Gadgets, api: Api, pods: Pods, about: Any, resource: str, eventually: Callable[..., Any]
) -> None:
    wants = {"limits": {resource: "2"}}
    look = "ls /gadgets > /dev/termination-log"
    first = {"name": "first", "image": "host", "command": ["sh", "-c", f"{look}; true"]}
    other = {"name": "other", "image": "host", "command": ["sh", "-c", f"! {look}"]}
    pods.create(
        "p",
        look,
        container={"resources": wants},
        initContainers=[{**first, "resources": {"limits": {resource: "1"}}}, other],
        restartPolicy="Never",
    )
    pod = pods.over("p", within=90)
    # Which ones are free depends on the tests before.
    given = about.state(pod)["terminated"]["message"].split()
    assert len(given) == 2
    assert {"g-0", "g-1", "g-2"} > set(given)
    inits = [each["state"]["terminated"] for each in pod["status"]["initContainerStatuses"]]
    assert inits[0]["message"].split() == given
    assert inits[1]["exitCode"] == 0
    status = pod["status"]["extendedResourceClaimStatus"]
    assert [(each["containerName"], each["requestName"]) for each in status["requestMappings"]] == [
        (pod["spec"]["containers"][0]["name"], "container-2-request-0"),
        ("first", "container-2-request-0"),
    ]
    name = status["resourceClaimName"]
    assert name.startswith("p-extended-resources-")
    # The devices are free again, and the claim is gone.
    eventually(lambda: home.calls(name)[-1:] == ["unprepare"])
    eventually(lambda: api.get(CLAIMS.format(pods.namespace))["items"] == [])


def test_a_refusal_is_an_event_and_the_pod_waits(
    home: Gadgets, claimant: Claimant, pods: Pods, eventually: Callable[..., Any]
) -> None:
    home.behave("refuse", "the gadget is upside down")
    claimant.claim("refused", a="g-0")
    claimant.pod("p", "refused")
    text = (
        "Failed to prepare dynamic resources: prepare dynamic resources: "
        "NodePrepareResources failed for ResourceClaim refused: the gadget is upside down"
    )
    eventually(lambda: text in pods.events("p", PREPARES))
    assert pods.get("p")["status"]["phase"] == "Pending"
    home.behave_well()
    pods.ready("p")


def test_the_health_of_a_device_is_in_the_status(
    home: Gadgets, claimant: Claimant, pods: Pods, about: Any
) -> None:
    claimant.claim("sick", a="g-0")
    claimant.pod("p", "sick")
    pods.ready("p")
    home.behave("sick", "g-0")

    def sick(pod: Json) -> bool:
        (told,) = about.status(pod).get("allocatedResourcesStatus", [{}])
        return bool(told) and told["resources"][0]["health"] == "Unhealthy"

    (told,) = about.status(pods.when("p", sick))["allocatedResourcesStatus"]
    assert told["name"] == "claim:g"
    assert told["resources"][0]["message"] == "it is too hot"


def test_pod_resources_list_claims(home: Gadgets, claimant: Claimant, pods: Pods) -> None:
    claimant.claim("listed", a="g-2")
    claimant.pod("p", "listed")
    pods.ready("p")

    async def ask() -> pod_resources.ListPodResourcesResponse:
        grpc = library.load()
        where = f"unix:{home.kubelet / 'pod-resources' / 'kubelet.sock'}"
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(where, options=options) as channel:
            return await methods.caller(channel, pod_resources.LIST)(Empty(), timeout=10)

    found = asyncio.run(ask()).pod_resources
    (mine,) = [each for each in found if each.namespace == pods.namespace]
    (claim,) = mine.containers[0].dynamic_resources
    (device,) = claim.claim_resources
    assert (claim.claim_name, device.driver_name, device.device_name) == ("listed", DRIVER, "g-2")


def test_the_driver_knows_the_environment(home: Gadgets, claimant: Claimant, pods: Pods) -> None:
    claimant.claim("env", a="g-0")
    container = {
        "resources": {"claims": [{"name": "g"}]},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}],
    }
    claimant.pod("p", "env", container=container)
    pods.ready("p")
    (call,) = [each for each in home.entries() if each["claim"] == "env"]
    assert call["env"] == [{"A": "1", "B": "12"}]


# Restarts.


def test_a_driver_that_dies_in_the_middle_of_a_call_is_asked_again(
    home: Gadgets, claimant: Claimant, pods: Pods, eventually: Callable[..., Any]
) -> None:
    home.behave("slow")
    uid = claimant.claim("cut", a="g-0")
    claimant.pod("p", "cut")
    eventually(lambda: home.calls("cut"))
    home.kill()
    eventually(lambda: pods.events("p", PREPARES))
    home.behave_well()
    home.start()
    pods.ready("p", within=60)
    assert len(home.left(uid)) == 2
    pods.delete("p")
    eventually(lambda: home.calls("cut")[-1] == "unprepare")
    eventually(lambda: home.left(uid) == [])


def test_an_agent_that_dies_in_the_middle_of_a_call_forgets_no_claim(
    home: Gadgets, claimant: Claimant, pods: Pods, eventually: Callable[..., Any]
) -> None:
    home.behave("slow")
    uid = claimant.claim("half", a="g-1")
    claimant.pod("p", "half")
    eventually(lambda: home.calls("half"))
    home.kill_agent()
    home.behave_well()
    # The pod is gone before the next agent sees it.
    pods.delete("p", gracePeriodSeconds=0)
    pods.gone("p")
    assert len(home.left(uid)) == 2
    home.revive_agent()
    eventually(lambda: home.calls("half")[-1] == "unprepare", 90)
    eventually(lambda: home.left(uid) == [])


def test_a_claim_is_unprepared_when_its_driver_is_back(
    home: Gadgets, claimant: Claimant, pods: Pods, eventually: Callable[..., Any]
) -> None:
    uid = claimant.claim("kept", a="g-2")
    claimant.pod("p", "kept")
    claimant.pod("q", "kept")
    pods.ready("p")
    pods.ready("q")
    assert home.calls("kept") == ["prepare"]
    pods.delete("p")
    pods.gone("p")
    home.kill()
    pods.delete("q", gracePeriodSeconds=1)
    eventually(lambda: pods.events("q", "FailedUnprepareDynamicResources"), 60)
    assert pods.get("q")["metadata"]["deletionTimestamp"]
    home.kill_agent()
    home.revive_agent()
    home.start()
    pods.gone("q", within=60)
    assert home.calls("kept") == ["prepare", "unprepare"]
    assert home.left(uid) == []


def test_the_driver_passes_its_check(tmp_path: Path) -> None:
    script = Path(__file__).with_name("gadget_driver.py")
    kubelet = tmp_path / "kubelet"
    (tmp_path / "own").mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kedge", "device", "check", str(kubelet), "--driver"),
            f"--run={sys.executable} {script} {tmp_path / 'own'} {kubelet}",
            "-o=json",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["summary"]["fail"], report["summary"]["skip"]) == (0, 0, 0)
    warned = [each["title"] for each in report["findings"] if each["verdict"] == "warn"]
    # This driver does not handle the signal.
    assert warned == ["ends on SIGTERM"]
