"""Which network the pods of a node can have."""

import errno
import os
import socket
from pathlib import Path

from kedge.node.config import NodeConfig
from kedge.node.network.network_detection import OtherMachines, links_refusal
from kedge.node.network.network_place import MachineNetwork


class ForbiddenNetwork(MachineNetwork):
    """A network in which this user may not even open a netlink socket."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_forbidden_network_is_refused_in_words() -> None:
    refusal = "the kernel refuses network links: Operation not permitted"
    assert links_refusal(ForbiddenNetwork()) == refusal


def test_a_machine_without_an_underlay_has_no_other_machines(tmp_path: Path) -> None:
    config = NodeConfig(name="box", cluster="test", state=tmp_path, images=tmp_path)
    assert OtherMachines.find(config, None) is None
