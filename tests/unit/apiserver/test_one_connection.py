"""Requests with the same bytes on one connection: each is authenticated, authorized, counted and
shared out anew, whatever the server has kept of the one before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kedge.machinery.clock import SystemClock
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.server import HttpServer

PATH = "/api/v1/namespaces/default/configmaps/m"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class Client:
    """A connection on which requests follow each other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, sent: bytes) -> int:
        self.writer.write(sent)
        return await self.status()

    async def status(self) -> int:
        """Read an answer; returns its status."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length))
        return int(head.split(b" ", 2)[1])


@asynccontextmanager
async def listening(server: LocalServer) -> AsyncIterator[HttpServer]:
    web = HttpServer(server.app.handle, SystemClock(), screen=server.app.screen)
    await web.listen("127.0.0.1", 0, None)
    try:
        yield web
    finally:
        await web.close(0)


@asynccontextmanager
async def connected(web: HttpServer) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def get(token: str, path: str = PATH, fields: str = "") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{fields}\r\n"
    return head.encode()


async def prepare(server: LocalServer, name: str = "reader") -> str:
    """Make an object that this account may read; returns the account's token."""
    await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    configmaps = PATH.removesuffix("/m")
    await server.call("POST", configmaps, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    await server.post(ACCOUNTS, {"metadata": {"name": name}})
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await server.call("POST", f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    await bind(server, name)
    made = await server.post(f"{ACCOUNTS}/{name}/token", {"spec": {}})
    token: str = made["status"]["token"]
    return token


async def bind(server: LocalServer, name: str) -> None:
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    await server.post(f"{RBAC}/rolebindings", binding)


async def test_a_token_that_is_revoked_is_refused_on_its_connection(server: LocalServer) -> None:
    sent = get(await prepare(server))
    async with listening(server) as web, connected(web) as client:
        assert [await client.ask(sent) for _ in range(3)] == [200, 200, 200]
        await server.delete(f"{ACCOUNTS}/reader")
        assert [await client.ask(sent) for _ in range(2)] == [401, 401]


async def test_a_right_that_is_withdrawn_is_withdrawn_on_open_connections(
    server: LocalServer,
) -> None:
    sent = get(await prepare(server))
    async with listening(server) as web, connected(web) as client:
        assert [await client.ask(sent) for _ in range(3)] == [200, 200, 200]
        await server.delete(f"{RBAC}/rolebindings/reader")
        assert [await client.ask(sent) for _ in range(2)] == [403, 403]
        await bind(server, "reader")
        assert await client.ask(sent) == 200
        await server.delete(PATH)
        assert await client.ask(sent) == 404


async def test_users_with_the_same_request_line_get_their_own_answers(server: LocalServer) -> None:
    allowed = get(await prepare(server))
    denied = get(await prepare(server, "other"))
    await server.delete(f"{RBAC}/rolebindings/other")
    wrong = get(TOKEN + "x")
    async with listening(server) as web, connected(web) as one, connected(web) as two:
        for _ in range(3):
            assert await one.ask(allowed) == 200
            assert await two.ask(denied) == 403
            assert await two.ask(wrong) == 401
        # On one connection, as a proxy sends them for several users.
        mixed = [allowed, denied, allowed, get(TOKEN), denied, wrong, allowed]
        expected = [200, 403, 200, 200, 403, 401, 200]
        assert [await one.ask(each) for each in mixed] == expected


@pytest.mark.parametrize(
    "fields",
    [
        "Impersonate-User: nobody\r\n",
        "Content-Length: 0\r\nImpersonate-User: nobody\r\n",
        "Impersonate-User: system:serviceaccount:default:absent\r\n",
    ],
)
async def test_a_user_who_acts_as_another_is_that_one_with_each_request(
    server: LocalServer, fields: str
) -> None:
    await prepare(server)
    async with listening(server) as web, connected(web) as client:
        sent = [get(TOKEN), get(TOKEN, fields=fields)] * 3
        assert [await client.ask(each) for each in sent] == [200, 403] * 3


async def test_what_comes_before_or_behind_a_known_request_is_a_request_of_its_own(
    server: LocalServer,
) -> None:
    allowed = get(await prepare(server))
    other = get(TOKEN + "x")
    body = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    hidden = body % (PATH.encode(), len(allowed)) + allowed
    chunked = (
        b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (PATH.encode(), len(allowed), allowed)
    )
    async with listening(server) as web, connected(web) as client:
        assert [await client.ask(allowed) for _ in range(2)] == [200, 200]
        for sent, expected in (
            (allowed + other + allowed, [200, 401, 200]),
            (other + allowed, [401, 200]),
            # Strangers may not POST: their body, a request of somebody who may read, is only read.
            (hidden + allowed, [403, 200]),
            (chunked + allowed, [403, 200]),
        ):
            client.writer.write(sent)
            assert [await client.status() for _ in expected] == expected
        for at in (1, 20, len(other) - 1):
            client.writer.write(other[:at])
            await SystemClock().sleep(0.01)
            client.writer.write(other[at:] + allowed)
            assert [await client.status() for _ in range(2)] == [401, 200]


async def test_every_request_is_counted_and_has_a_flow(server: LocalServer) -> None:
    sent = get(await prepare(server))
    async with listening(server) as web, connected(web) as client:

        def counted() -> tuple[int, int]:
            lines = server.app.telemetry.text().splitlines()
            gets = [
                line
                for line in lines
                if line.startswith("apiserver_request_total") and '"configmaps"' in line
            ]
            total = sum(int(line.rpartition(" ")[2]) for line in gets if 'verb="GET"' in line)
            return total, sum(each.dispatched for each in server.app.flows.counts.values())

        before = counted()
        for _ in range(7):
            assert await client.ask(sent) == 200
        after = counted()
        assert (after[0] - before[0], after[1] - before[1]) == (7, 7)
