"""The description that a node gives of itself: its Node, and the record for `kedge status`."""

from typing import NamedTuple

from kedge.api.builtin.policy_limits import ENFORCED, ENFORCEMENT_ANNOTATION
from kedge.api.core_v1.node_types import Node
from kedge.node.config import registry_flags
from kedge.node.foundation import NodeFoundation, registry_settings
from kedge.node.host import machine_annotations, node_record, registration
from kedge.node.network.peers import MACHINE_ADDRESS, NODE_NETWORK, PeerPlan, described
from kedge.node.storage.node_storage import MANAGED_ATTACHMENT


class NodeDescription(NamedTuple):
    """Describes one node in the terms of its readers."""

    base: NodeFoundation

    @property
    def node_network(self) -> str:
        """How this node reaches the pods of other machines, before it knows any."""
        machines, bridge = self.base.machines, self.base.network.bridge
        if machines is None or bridge is None:
            return ""
        if bridge.refusal:
            return f"none ({bridge.refusal})"
        return described(machines.setting, PeerPlan(), machines.lack)

    @property
    def network_policy(self) -> str:
        """How this node enforces NetworkPolicies."""
        bridge = self.base.network.bridge
        if self.base.network.loopback is not None:
            return "none: pods share the machine's network"
        if bridge is None:
            return "none: pods have no addresses of their own"
        return f"none: {bridge.refusal}" if bridge.refusal else ENFORCED

    @property
    def service_proxy(self) -> str:
        """How this node carries Services."""
        bridge, refusal, loopback = self.base.network
        if loopback is not None:
            return f"loopback {loopback.services}: pods share the machine's network: {refusal}"
        if bridge is None:
            return f"none: pods have no addresses of their own: {refusal}"
        return f"userspace: {bridge.refusal}" if bridge.refusal else "nftables"

    @property
    def pod_cidr(self) -> str:
        """The network of the node's pods; empty if they have none."""
        network = self.base.network.of_pods
        return str(network.network) if network is not None else ""

    def node_object(self, address: str, port: int) -> Node:
        """Return the Node to register, with an agent that listens at this address."""
        runtime = self.base.runtime
        return registration.node_object(
            self.base.config,
            self.base.machine,
            runtime.capabilities,
            port=port,
            address=address,
            pod_cidr=self.pod_cidr,
            user_namespaces=not runtime.no_user_namespaces,
            annotations=self._annotations(),
            runtime=f"{runtime.name}://{runtime.version}",
            features=runtime.features,
        )

    def write_record(self, port: int, node_network: str = "") -> None:
        """Write the record of this node into its state directory."""
        config, capabilities = self.base.config, self.base.runtime.capabilities
        groups = self.base.runtime.cgroups
        written = node_record.NodeRecord(
            name=config.name,
            cluster=config.cluster,
            level=capabilities.level,
            cgroup=config.cgroup if capabilities.has_cgroups else "",
            hierarchies=[node_record.HierarchyRecord(**each) for each in groups.documents()]
            if groups
            else [],
            port=port,
            pod_cidr=self.pod_cidr,
            service_proxy=self.service_proxy,
            machine_address=config.machine_address,
            node_network=node_network or self.node_network,
            network_policy=self.network_policy,
            host_image=self.base.host_image,
            registries=tuple(registry_settings(config).described()),
            registry_flags=registry_flags(config),
            runtime=config.container_runtime,
        )
        node_record.write(config.state, written)

    def _annotations(self) -> dict[str, str]:
        annotations = {
            **machine_annotations.capability_annotations(self.base.runtime.capabilities),
            registration.SERVICE_PROXY: self.service_proxy,
            ENFORCEMENT_ANNOTATION: self.network_policy,
            MANAGED_ATTACHMENT: "true",
        }
        if self.base.machines is not None:
            annotations[MACHINE_ADDRESS] = str(self.base.machines.underlay.address)
            annotations[NODE_NETWORK] = self.node_network
        return annotations
