"""Lifecycle hooks of containers: postStart and preStop."""

import ssl
from collections.abc import Sequence

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import HTTPGetAction, LifecycleHandler
from kedge.machinery.clock import Clock, machine_clock
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.pod.timeouts import with_timeout
from kedge.node.probes.http import HttpError, describe, get, request_for
from kedge.node.probes.outcome import ProbeError
from kedge.node.runtime.runtime import NotFoundError, Runtime, RuntimeFailure

TIMEOUT_SECONDS = 24 * 3600.0
"""Seconds for a command or a request of a hook; only the grace period limits a hook."""
OUTPUT_BYTES = 1024
"""Bytes of a failed command's output that the message contains."""


class HookFailure(Exception):
    """A hook failed; the text is for the container's status."""


async def run_hook(
    handler: LifecycleHandler,
    container: Container,
    container_id: str,
    *,
    ip: str,
    runtime: Runtime,
    clock: Clock,
    network: NetworkPlace = MACHINE,
) -> None:
    """Run a hook. Raises HookFailure."""
    if handler.exec is not None:
        await _command(handler.exec.command, container_id, runtime)
    elif handler.httpGet is not None:
        await _request(handler.httpGet, container, ip, clock, network)
    elif handler.sleep is not None:
        # A part of the grace period, which is in real time.
        await machine_clock(clock).sleep(handler.sleep.seconds)
    else:
        raise HookFailure("Cannot run handler: invalid handler")


async def _command(argv: Sequence[str], container_id: str, runtime: Runtime) -> None:
    words = " ".join(argv)
    try:
        done = await runtime.execute(container_id, argv, TIMEOUT_SECONDS)
    except (RuntimeFailure, NotFoundError, TimeoutError) as error:
        raise HookFailure(f"Exec lifecycle hook ([{words}]) failed - error: {error}") from error
    if done.exit_code != 0:
        output = (done.stdout + done.stderr)[:OUTPUT_BYTES].decode(errors="replace")
        raise HookFailure(
            f"Exec lifecycle hook ([{words}]) failed - error: command '{words}' exited with "
            f'{done.exit_code}: {output}, message: "{output}"'
        )


async def _request(
    action: HTTPGetAction, container: Container, ip: str, clock: Clock, network: NetworkPlace
) -> None:
    """Send the request of a hook; any response counts as success, as in the kubelet."""
    try:
        request = request_for(action, container, ip, "lifecycle")
        try:
            await with_timeout(clock, TIMEOUT_SECONDS, get(request, clock, network))
        except ssl.SSLError:
            # A server without TLS is tried with HTTP, as in the kubelet since its early versions.
            plain = replace(action, scheme="HTTP")
            response = get(request_for(plain, container, ip, "lifecycle"), clock, network)
            await with_timeout(clock, TIMEOUT_SECONDS, response)
    except (OSError, HttpError) as error:
        why = f'Get "{request.url}": {describe(error, request.url)}'
        raise HookFailure(f"HTTP lifecycle hook ({action.path}) failed - error: {why}") from error
    except ProbeError as error:
        raise HookFailure(f"HTTP lifecycle hook ({action.path}) failed - error: {error}") from error
