"""One start of a server in the warm parent, so that those of clusters find everything prepared."""

import tempfile
from pathlib import Path

import uvloop

from kedge import control_plane
from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.apiserver.server import serve
from kedge.cluster.warm_parent.signing_key import SharedSigningKey


def rehearse(key: SharedSigningKey) -> None:
    """Start a server without nodes, and end it when it answers.

    It imports modules, computes tables and encodes objects on their first use. A fork has them
    then: it is ready sooner, and shares their memory. Its threads have ended when this returns.
    """
    with tempfile.TemporaryDirectory(prefix="kedge-rehearsal-") as place:
        config = ServerConfig(
            state=Path(place),
            port=0,
            store="memory",
            admission=UPSTREAM_ADMISSION,
            gateway=False,
            testing=True,
        )
        key.put(config.pki)
        uvloop.run(_start(config))


async def _start(config: ServerConfig) -> None:
    async with serve(config, control_plane.clock_of(config)):
        pass
