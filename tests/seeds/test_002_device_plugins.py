"""Resource configuration in device plugins upon container start: the sentences that need no
container. The others are end-to-end tests; docs/seeds names them."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import pytest
import yaml

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.deviceplugin import Owner, Refused, library, methods, pod_resources
from kedge.deviceplugin.messages import (
    DevicePluginOptions,
    Empty,
    PreStartContainerRequest,
)
from kedge.node.pod.environment.environment import EnvironmentVariables
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.testing.device_plugin import DeviceStage, ScriptedPlugin, device_stage
from kedge.testing.local_server import LocalServer
from kedge.testing.webhook_server import configured, webhook, webhook_server, webhooks_on

FPGA = Path(__file__).resolve().parents[2] / "examples" / "fpga"
PODS = "/api/v1/namespaces/default/pods"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
REGION = "ce48969398f05f33946d560708be108a"
DEVICES = f"fpga.intel.com/region-{REGION}"
EXAMPLE = """
apiVersion: v1
kind: Pod
metadata:
  name: intel-fpga-demo-compress
spec:
  containers:
  - name: intel-fpga-demo-compress
    image: intel-fpga-demo-compress:devel
    imagePullPolicy: IfNotPresent
    command: ["sh", "/opt/intel/intel-fpga-demo-compress/demo/demo.sh"]
    securityContext:
      capabilities:
        add:
          [IPC_LOCK]
    resources:
      limits:
        fpga.intel.com/region-ce48969398f05f33946d560708be108a: 1
        cpu: 1
        hugepages-2Mi: 20Mi
    env:
      FPGA_BITSTREAM_ID_1: 18b79ffa2ee54aa096ef4230dafacb5f
      FPGA_REGION_1: ce48969398f05f33946d560708be108a
      FPGA_DRIVER_PARAMS_1: clock=1000,debug=1
  restartPolicy: Never
"""
POD = yaml.safe_load(EXAMPLE)
ENV = {
    "FPGA_BITSTREAM_ID_1": "18b79ffa2ee54aa096ef4230dafacb5f",
    "FPGA_REGION_1": REGION,
    "FPGA_DRIVER_PARAMS_1": "clock=1000,debug=1",
}


class BareNode:
    """A node whose object is empty."""

    exposed = ()
    node = Node()


class AskingPlugin(ScriptedPlugin):
    """Asks the node which pod has its device while it is called."""

    def __init__(self, stage: DeviceStage) -> None:
        super().__init__(DEVICES, ["d-0"], options=DevicePluginOptions(pre_start_required=True))
        self._stage = stage
        self.found: list[tuple[str, list[str]]] = []

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: Owner | None
    ) -> None:
        await super().pre_start(ids, env, owner)
        self.found += [
            (pod.name, list(device.device_ids))
            for pod in await listed(self._stage)
            for container in pod.containers
            for device in container.devices
        ]


async def listed(stage: DeviceStage) -> Any:
    """The answer of the node's endpoint for device assignments."""
    grpc = library.load()
    where = f"unix:{stage.devices.places.resources / 'kubelet.sock'}"
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(where, options=options) as channel:
        ask = methods.caller(channel, pod_resources.LIST)
        return (await ask(Empty(), timeout=10)).pod_resources


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[DeviceStage]:
    async with device_stage(tmp_path) as made:
        yield made


async def started(server: LocalServer, stage: DeviceStage, plugin: ScriptedPlugin) -> None:
    """Take the steps of a node for the pod of the document, up to the start of its container."""
    stored: Pod = RESOURCE.from_document(await server.post(PODS, POD))
    stage.pods = [stored]
    devices = await stage.begin()
    await stage.plug(plugin)
    objects = ReferencedObjects(server.client, server.clock)
    server.start(objects.run())
    environment = EnvironmentVariables(objects, BareNode(), lambda pod, volume: stage.own)
    container = stored.spec.containers[0]
    await devices.allocate(stored)
    found = await environment.environment(stored, container, [])
    await devices.pre_start(stored, container, found.own)


def test_the_request_has_a_field_env_which_is_a_map_of_strings() -> None:
    hint = get_type_hints(PreStartContainerRequest, include_extras=True)["env"]
    kind, number = get_args(hint)
    assert hint == Annotated[kind, number]
    assert (kind, number) == (Mapping[str, str], 50029)


async def test_the_pod_of_the_document_is_accepted(server: LocalServer) -> None:
    answer = await server.call("POST", PODS, POD)
    assert answer.status == 201, answer.text
    (container,) = answer.document["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == ENV
    assert container["resources"]["limits"] == {DEVICES: "1", "cpu": "1", "hugepages-2Mi": "20Mi"}
    assert answer.warnings == [
        '299 - "spec.containers[0].env: kedge extension, not portable to other clusters"'
    ]


async def test_just_before_the_start_the_plugin_gets_the_content_of_env(
    server: LocalServer, stage: DeviceStage
) -> None:
    plugin = AskingPlugin(stage)
    await started(server, stage, plugin)
    assert plugin.environments == [ENV]
    assert plugin.calls == [("allocate", ("d-0",)), ("pre_start", ("d-0",))]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The simulated board of the example."""
    monkeypatch.syspath_prepend(str(FPGA))
    yield import_module("board").Board(tmp_path)
    for name in ("board", "plugin"):
        sys.modules.pop(name, None)


async def test_the_plugin_checks_the_region_programs_the_device_and_overrides_driver_settings(
    board: Any,
) -> None:
    plugin = import_module("plugin").Region(board, REGION)
    for wrong in ("9926ab6d6c925a68aabca7d84c545738", ""):
        with pytest.raises(Refused, match=f"with the interface ID {REGION} were allocated"):
            await plugin.pre_start(["port-0"], {**ENV, "FPGA_REGION_1": wrong}, None)
    assert board.history() == []
    await plugin.pre_start(["port-0"], ENV, None)
    (programmed,) = board.history()
    assert programmed == {
        "port": "port-0",
        "programmed": ENV["FPGA_BITSTREAM_ID_1"],
        "driver": "clock=1000,debug=1,dma=on",
    }


async def test_during_the_call_the_endpoint_names_the_pod_of_the_device(
    server: LocalServer, stage: DeviceStage
) -> None:
    """The document feared a race: an endpoint that is updated after the call."""
    plugin = AskingPlugin(stage)
    await started(server, stage, plugin)
    assert plugin.found == [("intel-fpga-demo-compress", ["d-0"])]


async def test_an_admission_webhook_checks_permissions_before_the_workload_is_admitted(
    server: LocalServer, tmp_path: Path
) -> None:
    seen = []

    def decide(request: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(request["object"]["spec"]["containers"][0]["env"])
        return {"allowed": False, "status": {"code": 403, "message": "not your bitstream"}}

    async with webhook_server(tmp_path) as hook, webhooks_on(server):
        hook.decisions["/"] = decide
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        asked = webhook(hook, rules=[{**rule, "operations": ["CREATE"]}])
        await server.post(WEBHOOKS, configured("bitstreams", asked, sort="Validating"))
        answer = await server.call("POST", PODS, POD)
    assert answer.status == 403
    assert answer.message.endswith("denied the request: not your bitstream")
    assert seen == [[{"name": name, "value": value} for name, value in ENV.items()]]
    assert (await server.get(PODS))["items"] == []
