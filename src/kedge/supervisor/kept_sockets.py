"""Sockets that outlive the node agent. While the agent restarts, the kernel queues the packets and
connections that arrive, instead of refusing them."""

import os
from typing import Final

from kedge.supervisor.server import AgentRequest, Handler, RequestError

MOST_NAMES: Final = 16


class KeptSockets:
    """Descriptors by name."""

    def __init__(self) -> None:
        self._kept: dict[str, list[int]] = {}

    def handlers(self) -> dict[str, Handler]:
        return {"keep_sockets": self._keep, "kept_sockets": self._answer}

    def _keep(self, call: AgentRequest) -> None:
        """Replace the sockets of a name; without any, close them."""
        name = str(call.message.get("name", ""))
        if name not in self._kept and len(self._kept) >= MOST_NAMES:
            raise RequestError(f"sockets of more than {MOST_NAMES} names")
        for descriptor in self._kept.pop(name, ()):
            os.close(descriptor)
        if given := call.take_descriptors():
            self._kept[name] = given
        call.answer()

    def _answer(self, call: AgentRequest) -> None:
        kept = self._kept.get(str(call.message.get("name", "")), ())
        call.answer({}, [os.dup(descriptor) for descriptor in kept])
