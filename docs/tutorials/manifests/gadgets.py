"""A device plugin for two gadgets, whose mode a container chooses by a variable."""

import sys

from kedge.deviceplugin import ContainerAllocateResponse, Device, DeviceSpec, Plugin, Refused


class Gadgets(Plugin):
    resource = "example.com/gadget"

    def devices(self):
        return [Device("gadget-0"), Device("gadget-1")]

    async def allocate(self, ids, owner):
        nodes = [DeviceSpec(container_path=f"/dev/{each}", host_path="/dev/null") for each in ids]
        return ContainerAllocateResponse(devices=nodes, envs={"GADGETS": ",".join(ids)})

    async def pre_start(self, ids, env, owner):
        if env.get("GADGET_MODE", "fast") not in ("fast", "slow"):
            raise Refused("GADGET_MODE is fast or slow")


Gadgets().run(sys.argv[1])
