"""Requests of agents about sandboxes."""

import os
import socket
import time
from collections.abc import Callable
from functools import partial

from kedge.supervisor.registry import Registry, do_nothing, published
from kedge.supervisor.sandbox.namespaces import first_id_of
from kedge.supervisor.sandbox.sandbox import Sandbox
from kedge.supervisor.server import AgentRequest, Handler, RequestError


class SandboxRequests:
    """One method for each request."""

    def __init__(self, registry: Registry, no_user_namespaces: str) -> None:
        """`no_user_namespaces` says why pods cannot have user namespaces; empty if they can."""
        self._registry = registry
        self._no_user_namespaces = no_user_namespaces

    def handlers(self) -> dict[str, Handler]:
        """Return the methods by the name of their request."""
        return {
            "run_sandbox": self._run,
            "settle_sandbox": self._settle,
            "stop_sandbox": self._stop,
            "remove_sandbox": self._remove,
            "dial": self._dial,
        }

    def _run(self, call: AgentRequest) -> None:
        name = call.message["name"]
        if first_id_of(call.message["shared"]) and self._no_user_namespaces:
            reason = self._no_user_namespaces
            raise RequestError(f"a pod cannot have a user namespace here: {reason}")
        for other in self._registry.sandboxes.values():
            if other.record["name"] == name:
                raise RequestError(f'the sandbox name "{name}" is reserved for {other.id}')
        record = {
            "id": os.urandom(32).hex(),
            "name": name,
            "about": call.message["about"],
            "shared": call.message["shared"],
            "created_at": time.time_ns(),
            "ready": False,
            "ips": [],
            "above": self._missing_cgroups(call.message["shared"]["cgroup_parent"]),
            "pause": "",
        }
        sandbox = self._registry.add_sandbox(record)

        def done(error: str, descriptors: list[int]) -> None:
            if not error:
                network = sandbox.pod.network(self._registry.host.own_pid())
                call.answer({**published(record), "network": network}, descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)
            sandbox.close(do_nothing)
            self._registry.discard_sandbox(sandbox)
            call.refuse(RequestError(error))

        sandbox.open(done)

    def _missing_cgroups(self, parent: str) -> list[str]:
        """Return the cgroups of a pod that the agent has not created; they are removed with the
        pod."""
        groups = self._registry.host.cgroups
        return groups.group(parent).missing() if groups and parent else []

    def _settle(self, call: AgentRequest) -> None:
        sandbox = self._registry.sandbox(call)
        sandbox.settle(call.message["ips"])
        call.answer(published(sandbox.record))

    def _stop(self, call: AgentRequest) -> None:
        sandbox = self._registry.sandboxes.get(call.message["sandbox"])
        if sandbox is None:
            call.answer()
            return
        self.end(sandbox, call.answer)

    def end(self, sandbox: Sandbox, done: Callable[[], None]) -> None:
        """Kill all containers of a sandbox, then close it, then call `done`."""
        inside = self._registry.containers_of(sandbox)
        left = {each.id for each in inside}

        def gone(identity: str) -> None:
            left.discard(identity)
            if not left:
                sandbox.close(done)

        for each in inside:
            each.kill()
            each.when_cleared(partial(gone, each.id))
        if not inside:
            sandbox.close(done)

    def _remove(self, call: AgentRequest) -> None:
        sandbox = self._registry.sandboxes.get(call.message["sandbox"])
        if sandbox is None:
            call.answer()
            return

        def finish() -> None:
            inside = self._registry.containers_of(sandbox)
            for each in inside:
                self._registry.discard_container(each)
            self._registry.discard_sandbox(sandbox)
            call.answer({"containers": [each.id for each in inside]})

        self.end(sandbox, finish)

    def _dial(self, call: AgentRequest) -> None:
        """Answer with a socket in the pod's network, which the agent connects."""
        sandbox = self._registry.ready_sandbox(self._registry.sandbox(call).id)
        if "net" not in sandbox.pod.held:
            made = socket.socket(call.message["family"], socket.SOCK_STREAM)
            call.answer({}, [made.detach()])
            return

        def done(error: str, descriptors: list[int]) -> None:
            if error:
                call.refuse(RequestError(error))
            else:
                call.answer({}, descriptors)

        sandbox.dial(call.message["family"], done)
