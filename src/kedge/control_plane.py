"""The control plane in one process: API server, controllers and scheduler."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from kedge.apiserver.config import ServerConfig
from kedge.apiserver.server import Running, serve
from kedge.client.client import Client
from kedge.client.transport import Call, Handler, LocalTransport
from kedge.controllers.controllers import Controllers
from kedge.machinery.clock import SystemClock
from kedge.scheduler.scheduler import Scheduler
from kedge.web.message import HttpRequest, Response

log = logging.getLogger(__name__)

OnReady = Callable[[Running], None]


def run(config: ServerConfig, on_ready: OnReady) -> None:
    """Run until SIGTERM or SIGINT; `on_ready` is called once everything answers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Few objects of a server form cycles, and looking for them costs more than it finds.
    gc.set_threshold(20_000, 20, 50)
    uvloop.run(_run(config, on_ready))


async def _run(config: ServerConfig, on_ready: OnReady) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(note_failure)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    async with serve(config, clock) as server, asyncio.TaskGroup() as tasks:
        client = Client(LocalTransport(into(server)), user_agent="kube-controller-manager")
        keepers = Controllers(
            client,
            clock,
            server.ca_pem,
            server.sign,
            server.sign_request,
            admission=config.admission,
        )
        planner = Client(LocalTransport(into(server)), user_agent="kube-scheduler")
        work = [
            tasks.create_task(keepers.run()),
            tasks.create_task(Scheduler(planner, clock).run()),
        ]
        gc.freeze()
        gc.enable()
        on_ready(server)
        await stop.wait()
        for task in work:
            task.cancel()


def note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What failed outside of any request, mostly handshakes of strangers: a line, not a page."""
    what = str(context.get("message", "")).partition("\n")[0]
    log.warning("%s: %r", what, context.get("exception"))


def into(server: Running) -> Handler:
    """Straight into the server that runs in this process, as its administrator."""

    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {server.token}"}
        return server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )

    return handle
