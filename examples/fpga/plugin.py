"""A device plugin that programs an FPGA from the environment of each container.

python plugin.py BOARD [DIRECTORY]: BOARD is the directory of the simulated board, DIRECTORY that of
the registration socket of the kubelet.
"""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from board import REGIONS, Board, CannotProgram

from kedge.deviceplugin import (
    DIRECTORY,
    ContainerAllocateResponse,
    Device,
    DeviceSpec,
    Mount,
    Owner,
    Plugin,
    Refused,
)


class Region(Plugin):
    """The ports of one region, offered as the resource fpga.intel.com/region-ID."""

    def __init__(self, board: Board, interface: str) -> None:
        super().__init__(f"fpga.intel.com/region-{interface}")
        self.board = board
        self.interface = interface

    def devices(self) -> Sequence[Device]:
        return [Device(port) for port in REGIONS[self.interface]]

    async def allocate(self, ids: Sequence[str], owner: Owner | None) -> ContainerAllocateResponse:
        """Give a container its own ports, but no others and not the management interface."""
        return ContainerAllocateResponse(
            # The null device replaces the device of a real port.
            devices=[
                DeviceSpec(container_path=f"/dev/fpga-{port}", host_path="/dev/null")
                for port in ids
            ],
            mounts=[
                Mount(
                    container_path=f"/run/fpga/{port}",
                    host_path=str(self.board.port(port)),
                    read_only=True,
                )
                for port in ids
            ],
        )

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: Owner | None
    ) -> None:
        """Program device n from FPGA_REGION_n, FPGA_BITSTREAM_ID_n and FPGA_DRIVER_PARAMS_n."""
        regions = numbered("FPGA_REGION", env)
        mine = [number for number, region in regions.items() if region == self.interface]
        if len(mine) != len(ids):
            wanted = ", ".join(f"FPGA_REGION_{n}={region}" for n, region in regions.items())
            raise Refused(
                f"{len(ids)} devices with the interface ID {self.interface} were allocated, "
                f"but the environment of the container has {wanted or 'no FPGA_REGION_1'}"
            )
        for port, number in zip(ids, mine, strict=True):
            try:
                bitstream = env.get(f"FPGA_BITSTREAM_ID_{number}", "")
                self.board.program(
                    port, bitstream, settings(env.get(f"FPGA_DRIVER_PARAMS_{number}", ""))
                )
            except CannotProgram as error:
                raise Refused(str(error)) from error

    async def release(self, ids: Sequence[str], owner: Owner | None) -> None:
        """Wipe the ports before another container gets them."""
        for port in ids:
            self.board.wipe(port)


def numbered(name: str, env: Mapping[str, str]) -> dict[int, str]:
    """Return the variables NAME_1, NAME_2, ... by number."""
    found = {}
    for variable, value in env.items():
        if match := re.fullmatch(rf"{name}_(\d+)", variable):
            found[int(match[1])] = value
    return dict(sorted(found.items()))


def settings(text: str) -> dict[str, str]:
    """Parse `clock=1000,debug=1`."""
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise CannotProgram(f'"{part}" is no setting of the driver')
        found[name] = value
    return found


async def main(board: str, directory: str = DIRECTORY) -> None:
    opened = Board(board)
    async with asyncio.TaskGroup() as tasks:
        for interface in REGIONS:
            tasks.create_task(Region(opened, interface).serve(Path(directory)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
