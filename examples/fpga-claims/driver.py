"""A driver that programs an FPGA as the claim says, or as the environment of its container says.

python driver.py BOARD KUBELET NODE: BOARD is the directory of the simulated board, KUBELET that of
the kubelet, NODE the name of the node.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fpga"))

from board import REGIONS, Board, CannotProgram
from plugin import settings

from kedge.dra import (
    AllocatedClaim,
    AllocatedDevice,
    CdiDeviceNode,
    CdiMount,
    ClaimReference,
    ContainerEdits,
    Device,
    DeviceAttribute,
    Driver,
    PreparedDevice,
    Refused,
)


class Fpga(Driver):
    """The ports of a board, as devices with their region as an attribute."""

    name = "fpga.intel.com"
    wants_environment = True

    def __init__(self, board: Board, node: str) -> None:
        super().__init__(node=node)
        self.board = board

    def devices(self) -> Sequence[Device]:
        return [
            Device(name=port, attributes={"region": DeviceAttribute(string=region)})
            for region, ports in REGIONS.items()
            for port in ports
        ]

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        """Program the ports of a claim, and give them to its containers."""
        for each in claim.devices:
            wanted = parameters(each, environment(claim))
            try:
                self.board.program(
                    each.device, wanted.get("bitstream", ""), settings(wanted.get("driver", ""))
                )
            except CannotProgram as error:
                raise Refused(str(error)) from error
        ids = self.cdi.write(claim.uid, {each.device: self.edits(each) for each in claim.devices})
        (self.cdi.directory / f"{claim.uid}.ports").write_text(" ".join(ids))
        return [
            PreparedDevice(
                request_names=[each.request],
                pool_name=each.pool,
                device_name=each.device,
                cdi_device_ids=[ids[each.device]],
            )
            for each in claim.devices
        ]

    def edits(self, device: AllocatedDevice) -> ContainerEdits:
        """Return the additions of one port: no other port, and not the management interface."""
        port = device.device
        return ContainerEdits(
            # The null device replaces the device of a real port.
            device_nodes=[CdiDeviceNode(path=f"/dev/fpga-{port}", host_path="/dev/null")],
            mounts=[
                CdiMount(
                    container_path=f"/run/fpga/{port}",
                    host_path=str(self.board.port(port)),
                    read_only=True,
                )
            ],
        )

    async def unprepare(self, claim: ClaimReference) -> None:
        """Wipe the ports before another claim gets them."""
        await super().unprepare(claim)
        ports = self.cdi.directory / f"{claim.uid}.ports"
        if ports.exists():
            for port in ports.read_text().split():
                self.board.wipe(port)
            ports.unlink()


def parameters(device: AllocatedDevice, env: Mapping[str, str]) -> dict[str, str]:
    """Return `bitstream` and `driver`: of the device class, of the claim, of the environment."""
    found: dict[str, str] = {}
    for each in device.parameters:
        found |= {name: str(value) for name, value in each.items()}
    variables = {"bitstream": "FPGA_BITSTREAM_ID_1", "driver": "FPGA_DRIVER_PARAMS_1"}
    return found | {name: env[each] for name, each in variables.items() if each in env}


def environment(claim: AllocatedClaim) -> dict[str, str]:
    """Return the variables of the containers that use the claim."""
    found: dict[str, str] = {}
    for container in claim.containers:
        if container.env_error:
            raise Refused(container.env_error)
        found |= container.env
    return found


def main(board: str, kubelet: str, node: str) -> None:
    Fpga(Board(board), node).run(Path(kubelet).absolute())


if __name__ == "__main__":
    main(*sys.argv[1:])
