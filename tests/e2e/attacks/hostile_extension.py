"""A program: an extension server whose answers are attacks, one for each resource."""

import asyncio
import contextlib
import ssl
import sys
from pathlib import Path

from kedge.apiserver import pki
from kedge.testing import hostile_server
from kedge.testing.hostile_server import Attack, HostilePeer

LIST = b'{"kind":"APIResourceList","groupVersion":"hostile.example.com/v1","resources":[]}'
FIELDS = b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"


async def discovery(peer: HostilePeer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n" + FIELDS % len(LIST) + b"\r\n\r\n" + LIST)


async def endless_upgrade(peer: HostilePeer) -> None:
    """Bytes of another protocol without end."""
    await peer.send(SWITCH)
    await peer.flood(b"x" * 65_536)


def attack(path: str) -> Attack:
    name = path.rpartition("/")[2]
    known = endless_upgrade if name == endless_upgrade.__name__ else discovery
    found: Attack = getattr(hostile_server, name, known)
    return found


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        await attack(head.split()[1].decode())(HostilePeer(writer))
    writer.close()


async def main(keys: Path) -> None:
    pki.ensure(keys, ("127.0.0.1",))
    # Not the context of a server of the cluster, which expects certificates of its own clients.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
