"""The PostgreSQL store when the server fails, is full, is protected, or is shared with others."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.settings.postgresql import PostgresAddress, PostgresHost
from kedge.storage.compaction import keep_history
from kedge.storage.expiry import milliseconds
from kedge.storage.postgresql import library, patience, session
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind
from kedge.storage.postgresql.store import PostgresStore
from kedge.storage.store import (
    DISK_FULL,
    DiskFull,
    RevisionCompacted,
    RevisionConflict,
    Store,
    StoreEntry,
    StoreError,
    StoreEvent,
    StoreReplaced,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from kedge.testing.clock import FakeClock
from kedge.testing.etcd_process import free_port
from kedge.testing.postgresql_process import DATABASE, USER, PostgresProcess
from kedge.testing.postgresql_tls import admit, client_certificate, protected_server

pytestmark = pytest.mark.timeout(60)


def at(server: PostgresProcess) -> PostgresConnection:
    return PostgresConnection(address=server.address)


@asynccontextmanager
async def opened(connection: PostgresConnection) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(connection, SystemClock())
    try:
        yield store
    finally:
        await store.close()


async def first(store: Store, count: int, since: int) -> list[StoreEvent]:
    async with aclosing(store.watch("", since=since)) as watch:
        return [await anext(watch) for _ in range(count)]


@pytest.fixture
def fresh(shared_postgresql: PostgresProcess) -> PostgresConnection:
    """A schema that does not exist yet."""
    return PostgresConnection(address=shared_postgresql.new_address())


async def test_a_watch_goes_on_without_a_gap_after_kill_9_of_the_server(
    postgresql: PostgresProcess,
) -> None:
    async with opened(at(postgresql)) as store:
        entry = await store.put("/a", b"0", expect=0)
        watching = asyncio.ensure_future(first(store, 6, since=entry.revision))
        for value in (b"1", b"2", b"3"):
            entry = await store.put("/a", value, expect=entry.revision)
        postgresql.kill()
        pending = asyncio.ensure_future(store.put("/a", b"4", expect=entry.revision))
        await asyncio.wait([pending], timeout=0.3)
        assert not pending.done()
        assert store.failure == f"postgresql at {postgresql.host} does not answer"
        await asyncio.to_thread(postgresql.start)
        entry = await pending
        for value in (b"5", b"6"):
            entry = await store.put("/a", value, expect=entry.revision)
        values = [event.entry.value for event in await watching]
        assert values == [b"1", b"2", b"3", b"4", b"5", b"6"]
        while store.failure:
            await SystemClock().sleep(0.01)


async def test_requests_fail_with_words_while_the_server_is_down(
    postgresql: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.2)
    async with opened(at(postgresql)) as store:
        entry = await store.put("/a", b"", expect=0)
        postgresql.kill()
        with pytest.raises(StoreUnavailable, match=r"does not answer.*pg_isready"):
            await store.get("/a")
        with pytest.raises((StoreUnavailable, WriteOutcomeUnknown)):
            await store.put("/a", b"", expect=entry.revision)
        await asyncio.to_thread(postgresql.start)
        assert await store.get("/a") == entry
    postgresql.kill()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await PostgresStore.open(at(postgresql), SystemClock())


async def test_writes_without_an_answer_happen_once_and_are_found(
    postgresql: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CALL_SECONDS", 0.3)
    async with opened(at(postgresql)) as store:
        entry = await store.put("/a", b"before", expect=0)
        doomed = await store.put("/b", b"before", expect=0)
        # The server carries them out once it goes on, long after their connection is lost.
        postgresql.pause()
        writes = [
            asyncio.ensure_future(store.put("/a", b"after", expect=entry.revision)),
            asyncio.ensure_future(store.put("/c", b"new", expect=0)),
            asyncio.ensure_future(store.delete("/b", expect=doomed.revision)),
            asyncio.ensure_future(store.delete("/b", expect=doomed.revision)),
        ]
        await asyncio.wait(writes, timeout=1)
        postgresql.go_on()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        entries = [each for each in outcomes if isinstance(each, StoreEntry)]
        assert [(each.key, each.value) for each in entries] == [
            ("/a", b"after"),
            ("/c", b"new"),
            ("/b", b"before"),
        ]
        # Of two deletions that look the same, one happened.
        assert isinstance(outcomes[3], RevisionConflict)
        assert {each.revision for each in entries} == {4, 5, 6}
        assert store.revision == 6


async def test_a_write_that_the_server_committed_and_did_not_confirm_is_found(
    fresh: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(fresh) as store:
        entry = await store.put("/a", b"before", expect=0)
        lossy = store._writer._session
        fetch = lossy.fetch

        async def fetch_and_lose(*arguments: Any) -> Sequence[Any]:
            await fetch(*arguments)
            lossy.disconnect()
            monkeypatch.setattr(lossy, "fetch", fetch)
            raise PostgresFailure(PostgresFailureKind.UNKNOWN, lossy.server, "lost")

        monkeypatch.setattr(lossy, "fetch", fetch_and_lose)
        written = await store.put("/a", b"after", expect=entry.revision)
        assert written == StoreEntry("/a", b"after", entry.revision + 1, entry.created)
        assert await store.get("/a") == written


async def test_a_write_that_is_still_under_way_when_its_connection_is_lost_is_ended_first(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    schema = fresh.address.schema
    waiting = f"""SELECT coalesce(min(pid), 0) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%\"{schema}\".write(%'"""

    async def pid_of_write() -> int:
        return int(await asyncio.to_thread(shared_postgresql.query, waiting))

    async with opened(fresh) as store:
        entry = await store.put("/a", b"before", expect=0)
        other = await library.load().connect(
            host="127.0.0.1", port=shared_postgresql.port, user=USER, database=DATABASE
        )
        lock = other.transaction()
        await lock.start()
        await other.execute(f"SELECT FROM {schema}.head FOR UPDATE")
        writing = asyncio.ensure_future(store.put("/a", b"after", expect=entry.revision))
        while not await pid_of_write():
            pass
        store._writer._session.disconnect()
        while await pid_of_write():
            pass
        await lock.rollback()
        await other.close()
        assert await writing == StoreEntry("/a", b"after", entry.revision + 1, entry.created)
        assert (await store.list("")).entries == [writing.result()]


async def test_two_servers_write_at_once_and_both_see_every_revision_once_in_order(
    fresh: PostgresConnection,
) -> None:
    async with opened(fresh) as one, opened(fresh) as two:
        count = 600
        seen = [asyncio.ensure_future(first(each, count, since=1)) for each in (one, two)]

        async def write(store: Store, name: str) -> list[StoreEntry]:
            return [await store.put(f"/{name}/{i}", b"x", expect=0) for i in range(count // 12)]

        written = await asyncio.gather(
            *(
                write(store, f"{number}-{task}")
                for number, store in enumerate((one, two))
                for task in range(6)
            )
        )
        entries = sorted((each for part in written for each in part), key=lambda e: e.revision)
        assert [each.revision for each in entries] == list(range(2, count + 2))
        for watched in seen:
            assert [event.entry for event in await watched] == entries


async def test_two_servers_create_one_key_and_one_of_them_wins(fresh: PostgresConnection) -> None:
    async with opened(fresh) as one, opened(fresh) as two:
        for turn in range(20):
            outcomes = await asyncio.gather(
                *(
                    store.put(f"/{turn}", name, expect=0)
                    for store, name in ((one, b"1"), (two, b"2"))
                ),
                return_exceptions=True,
            )
            [winner] = [each for each in outcomes if isinstance(each, StoreEntry)]
            [loser] = [each for each in outcomes if isinstance(each, RevisionConflict)]
            assert loser.current == winner


async def test_two_servers_see_the_writes_of_each_other(fresh: PostgresConnection) -> None:
    async with opened(fresh) as one, opened(fresh) as two:
        entry = await one.put("/a", b"one", expect=0)
        assert await two.get("/a") == entry
        updated = await two.put("/a", b"two", expect=entry.revision)
        assert await first(one, 1, since=entry.revision) == [StoreEvent("put", updated, entry)]
        with pytest.raises(RevisionConflict):
            await one.put("/a", b"three", expect=entry.revision)
        await two.compact(updated.revision)
        with pytest.raises(RevisionCompacted):
            await one.list("", at=entry.revision)
        later = await two.put("/b", b"", expect=0)
        # The revision comes from another server, and may not have arrived here yet.
        watching = asyncio.ensure_future(first(one, 1, since=later.revision))
        last = await two.put("/c", b"", expect=0)
        assert await watching == [StoreEvent("put", last, None)]


async def test_writes_arrive_although_no_notification_does(
    fresh: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedge.storage.postgresql.store.POLL_SECONDS", 0.05)
    async with opened(fresh) as one, opened(fresh) as two:
        monkeypatch.setattr(one, "_note", lambda revision: None)
        entry = await two.put("/a", b"", expect=0)
        assert await first(one, 1, since=1) == [StoreEvent("put", entry, None)]


async def test_keys_of_a_server_that_is_gone_expire(fresh: PostgresConnection) -> None:
    clock = FakeClock()
    gone = await PostgresStore.open(fresh, clock)
    await gone.put("/event", b"", expect=0, ttl=10)
    await gone.close()
    store = await PostgresStore.open(fresh, clock)
    try:
        watching = asyncio.ensure_future(first(store, 1, since=2))
        while not watching.done():
            await clock.advance(1)
            await SystemClock().sleep(0.01)
        assert [(each.kind, each.entry.key) for each in await watching] == [("delete", "/event")]
    finally:
        await store.close()


async def test_the_keys_of_another_server_expire_without_it(fresh: PostgresConnection) -> None:
    async with opened(fresh) as one:
        async with opened(fresh) as two:
            entry = await two.put("/event", b"", expect=0, ttl=1)
        # What a server does each minute.
        await one._sweep(milliseconds(SystemClock().now()) + 2000)
        assert await one.get("/event") is None
        assert [event.kind for event in await first(one, 1, since=entry.revision)] == ["delete"]


async def test_compaction_goes_on_after_an_outage(
    postgresql: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.2)
    async with opened(at(postgresql)) as store:
        entry = await store.put("/a", b"", expect=0)
        keeping = asyncio.ensure_future(keep_history(store, SystemClock(), age=0.5))
        postgresql.kill()
        await SystemClock().sleep(1.5)
        await asyncio.to_thread(postgresql.start)
        for _ in range(1000):
            try:
                entry = await store.put("/a", b"", expect=entry.revision)
                await store.list("", at=2)
            except StoreUnavailable:
                pass
            except RevisionCompacted:
                break
            await SystemClock().sleep(0.01)
        else:
            pytest.fail("nothing was compacted")
        keeping.cancel()


async def test_an_administrator_deletes_an_object_and_watches_notice(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    async with opened(fresh) as store:
        entry = await store.put("/é", b"", expect=0)
        query = f"SELECT {fresh.address.schema}.remove('/é')"
        assert await asyncio.to_thread(shared_postgresql.query, query) == "3"
        [event] = await first(store, 1, since=entry.revision)
        assert (event.kind, event.entry.key, event.previous) == ("delete", "/é", entry)


async def test_many_clusters_share_a_database(shared_postgresql: PostgresProcess) -> None:
    addresses = [shared_postgresql.new_address() for _ in range(3)]
    stores = [
        await PostgresStore.open(PostgresConnection(address=each), SystemClock())
        for each in addresses
    ]
    for number, store in enumerate(stores):
        for turn in range(number + 1):
            await store.put(f"/{turn}", b"", expect=0)
    assert [store.revision for store in stores] == [2, 3, 4]
    for store in stores:
        await store.close()


async def test_tables_of_others_and_another_layout_are_left_alone(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    schema = fresh.address.schema
    shared_postgresql.query(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.invoices ()")
    with pytest.raises(StoreError, match="tables that are not those of kedge"):
        await PostgresStore.open(fresh, SystemClock())
    shared_postgresql.query(f"DROP TABLE {schema}.invoices")
    async with opened(fresh):
        pass
    shared_postgresql.query(f"UPDATE {schema}.head SET layout = 7")
    with pytest.raises(StoreError, match="storage layout 7"):
        await PostgresStore.open(fresh, SystemClock())


async def test_a_schema_that_is_dropped_or_put_back_is_not_served_as_the_same(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    schema = fresh.address.schema
    async with opened(fresh) as store:
        entry = await store.put("/a", b"", expect=0)
        watching = asyncio.ensure_future(first(store, 1, since=entry.revision))
        await store.get("/a")
        shared_postgresql.query(f"DROP SCHEMA {schema} CASCADE")
        store._wakeup.set()
        with pytest.raises(StoreReplaced, match="the server starts again"):
            await watching
        with pytest.raises(StoreReplaced):
            await store.get("/a")
    async with opened(fresh) as store:
        assert (store.revision, (await store.list("")).entries) == (1, [])


async def test_a_standby_without_the_newest_writes_ends_all_history(
    postgresql: PostgresProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 1.0)
    directory = Path(tempfile.mkdtemp(prefix="kedge-postgresql-standby-"))
    standby: PostgresProcess | None = None
    try:
        async with opened(at(postgresql)) as store:
            kept = await store.put("/kept", b"", expect=0)
            standby = await asyncio.to_thread(postgresql.standby, directory)
            hosts = (postgresql.host, standby.host)
            both = PostgresConnection(address=postgresql.address._replace(hosts=hosts))
            # The standby has what was there before, and is never asked for more.
            lost = await store.put("/lost", b"", expect=0)
        async with opened(both) as store:
            watching = asyncio.ensure_future(first(store, 1, since=lost.revision))
            await store.get("/kept")
            standby.settings = (*standby.settings, "primary_conninfo=")
            await asyncio.to_thread(standby.spawn)
            await asyncio.to_thread(standby.wait)
            postgresql.kill()
            await asyncio.to_thread(standby.promote)
            with pytest.raises(StoreReplaced, match="standby without the newest writes"):
                await watching
        async with opened(both) as store:
            assert (await store.list("")).entries == [kept]
            with pytest.raises(RevisionCompacted):
                await first(store, 1, since=lost.revision)
            again = await store.put("/again", b"", expect=0)
            assert again.revision > lost.revision + 1000
        async with opened(both) as store:
            # Not a second time: the database is the same now.
            assert store.revision == again.revision
            assert await first(store, 1, since=again.revision - 1) == [
                StoreEvent("put", again, None)
            ]
    finally:
        if standby is not None:
            standby.remove()
        shutil.rmtree(directory, ignore_errors=True)


async def test_a_standby_alone_is_refused_with_words(
    postgresql: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.1)
    directory = Path(tempfile.mkdtemp(prefix="kedge-postgresql-standby-"))
    standby = await asyncio.to_thread(postgresql.standby, directory)
    try:
        await asyncio.to_thread(standby.spawn)
        await asyncio.to_thread(standby.wait)
        with pytest.raises(StoreUnavailable, match="it is a standby, not the primary server"):
            await PostgresStore.open(at(standby), SystemClock())
    finally:
        standby.remove()


async def test_too_few_connections_are_refused_with_words(
    shared_postgresql: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.1)
    shared_postgresql.query(
        "CREATE ROLE crowded LOGIN CONNECTION LIMIT 3;"
        f" GRANT CREATE ON DATABASE {DATABASE} TO crowded"
    )
    address = shared_postgresql.new_address()._replace(user="crowded")
    connection = PostgresConnection(address=address)
    with pytest.raises(StoreUnavailable, match=r"no connection left.*needs four"):
        async with opened(connection) as store:
            await store.put("/a", b"", expect=0)


async def test_what_an_administrator_has_to_do_is_told(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    shared_postgresql.query("CREATE ROLE stranger LOGIN")
    stranger = PostgresConnection(address=fresh.address._replace(user="stranger"))
    with pytest.raises(StoreError, match="CREATE SCHEMA name AUTHORIZATION"):
        await PostgresStore.open(stranger, SystemClock())
    nowhere = PostgresConnection(address=fresh.address._replace(database="nowhere"))
    with pytest.raises(StoreError, match=r'"nowhere" does not exist.*createdb'):
        await PostgresStore.open(nowhere, SystemClock())
    nobody = PostgresConnection(address=fresh.address._replace(user="nobody-here"))
    with pytest.raises(StoreError, match="Check the user in --store"):
        await PostgresStore.open(nobody, SystemClock())


async def test_a_schema_that_the_administrator_made_is_enough(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    shared_postgresql.query(
        f"CREATE ROLE tenant LOGIN; CREATE SCHEMA {fresh.address.schema} AUTHORIZATION tenant"
    )
    tenant = PostgresConnection(address=fresh.address._replace(user="tenant"))
    async with opened(tenant) as store:
        assert (await store.put("/a", b"", expect=0)).revision == 2


async def test_a_socket_of_this_machine_is_used(shared_postgresql: PostgresProcess) -> None:
    host = PostgresHost(str(shared_postgresql.directory), shared_postgresql.port)
    address = shared_postgresql.new_address()._replace(hosts=(host,))
    async with opened(PostgresConnection(address=address)) as store:
        assert (await store.put("/a", b"", expect=0)).revision == 2


async def test_the_library_may_be_missing(
    fresh: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    library.load.cache_clear()
    try:
        with pytest.raises(StoreError, match=r'pip install "kedge\[postgresql\]"'):
            await PostgresStore.open(fresh, SystemClock())
    finally:
        library.load.cache_clear()


@pytest.fixture
def protected(shared_postgresql: PostgresProcess, tmp_path: Path) -> Iterator[PostgresProcess]:
    """A server with TLS, whose certificate is of the authority in `tmp_path`."""
    with protected_server(tmp_path) as server:
        yield server


async def test_both_sides_prove_themselves(
    protected: PostgresProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.1)
    protected.query("ALTER ROLE kedge PASSWORD 's3cret:word'")
    admit(protected, "scram-sha-256")

    file = tmp_path / "password"
    plain = at(protected)
    with pytest.raises(StoreError, match="--postgresql-cafile"):
        await PostgresStore.open(plain, SystemClock())
    known = PostgresConnection(
        address=plain.address, authority=tmp_path / "ca.crt", password_file=file
    )
    with pytest.raises(StoreError, match="--postgresql-password-file"):
        await PostgresStore.open(known, SystemClock())
    file.write_text("wrong\n")
    with pytest.raises(StoreError, match="password authentication failed") as refused:
        await PostgresStore.open(known, SystemClock())
    assert "wrong" not in str(refused.value)
    file.write_text("s3cret:word\n")
    async with opened(known) as store:
        assert (await store.put("/a", b"", expect=0)).revision == 2

    other = tmp_path / "other"
    other.mkdir()
    pki.ensure(other, ["127.0.0.1"])
    stranger = PostgresConnection(
        address=plain.address, authority=other / "ca.crt", password_file=file
    )
    with pytest.raises(StoreError, match=r"certificate verify failed.*--postgresql-cafile"):
        await PostgresStore.open(stranger, SystemClock())


async def test_a_user_proves_itself_by_a_certificate(
    protected: PostgresProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.1)
    admit(protected, "cert clientcert=verify-full")
    own = client_certificate(tmp_path, USER)
    known = PostgresConnection(
        address=protected.address,
        authority=tmp_path / "ca.crt",
        certificate=own.with_suffix(".crt"),
        key=own.with_suffix(".key"),
    )
    async with opened(known) as one, opened(known) as two:
        entry = await one.put("/a", b"1", expect=0)
        assert await first(two, 1, since=1) == [StoreEvent("put", entry, None)]
        assert (await two.delete("/a", expect=entry.revision)).revision == entry.revision + 1
        # Connections that are made later show it, too.
        for each in (one._rows, one._lists, one._writer):
            each._session.disconnect()
        assert await one.get("/a") is None
        assert (await one.put("/b", b"", expect=0)).revision == entry.revision + 2

    async def refused(connection: PostgresConnection, words: str) -> None:
        with pytest.raises(StoreError, match=words) as error:
            await PostgresStore.open(connection, SystemClock())
        assert not isinstance(error.value, StoreUnavailable), "it would be tried again"

    def with_certificate(of: Path) -> PostgresConnection:
        return replace(known, certificate=of.with_suffix(".crt"), key=of.with_suffix(".key"))

    nothing = replace(known, certificate=None, key=None)
    await refused(nothing, "requires a valid client certificate.*--postgresql-certfile")
    jane = client_certificate(tmp_path, "jane")
    await refused(with_certificate(jane), 'failed for user "kedge".*--postgresql-certfile')
    other = tmp_path / "other"
    pki.ensure(other, ["127.0.0.1"])
    await refused(
        with_certificate(client_certificate(other, USER)),
        "refuses the certificate of --postgresql-certfile: .*unknown ca.*ssl_ca_file",
    )
    old = SystemClock().now() - timedelta(days=1000)
    await refused(
        with_certificate(client_certificate(tmp_path, USER, old)),
        "refuses the certificate of --postgresql-certfile: .*expired",
    )
    elsewhere = replace(
        known, address=known.address._replace(hosts=(PostgresHost("127.0.0.2", protected.port),))
    )
    await refused(elsewhere, "is not trusted: .*IP address mismatch.*the name in --store")


@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="needs the program pgbouncer")
@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_of_transactions_is_refused_and_one_of_sessions_is_not(
    shared_postgresql: PostgresProcess, mode: str
) -> None:
    with pooler(shared_postgresql, mode) as port:
        host = PostgresHost("127.0.0.1", port)
        address = shared_postgresql.new_address()._replace(hosts=(host,))
        if mode == "session":
            async with opened(PostgresConnection(address=address)) as store:
                assert (await store.put("/a", b"", expect=0)).revision == 2
            return
        with pytest.raises(StoreError, match="pool_mode = session"):
            await PostgresStore.open(PostgresConnection(address=address), SystemClock())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def pooler(server: PostgresProcess, mode: str) -> Iterator[int]:
    port = free_port()
    directory = Path(tempfile.mkdtemp(prefix="kedge-pgbouncer-"))
    (directory / "users").write_text(f'"{USER}" ""\n')
    (directory / "settings").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
        f"listen_addr=127.0.0.1\nlisten_port={port}\nauth_type=trust\nunix_socket_dir=\n"
        f"auth_file={directory}/users\npool_mode={mode}\n"
    )
    as_user = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.geteuid() == 0 else []
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755)
    process = subprocess.Popen([*as_user, "pgbouncer", "-q", str(directory / "settings")])
    try:
        while not listens(port):
            assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


async def fill(store: Store) -> None:
    for number in range(200):
        await store.put(f"/{number}", os.urandom(100_000), expect=0)


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
async def test_a_full_disk_refuses_writes_with_words_until_there_is_space(
    postgresql: PostgresProcess,
) -> None:
    space = postgresql.directory / "space"
    space.mkdir()
    with small_disk(space):
        shutil.chown(space, postgresql.data.owner(), postgresql.data.group())
        postgresql.query(f"CREATE TABLESPACE small LOCATION '{space}'")
        postgresql.query("CREATE DATABASE crowded TABLESPACE small")
        address = PostgresAddress((postgresql.host,), USER, "crowded")
        async with opened(PostgresConnection(address=address)) as store:
            with pytest.raises(DiskFull, match="no space on its disk"):
                await fill(store)
            assert store.failure == DISK_FULL
            # A small write is not refused with a large one.
            outcomes = await asyncio.gather(
                store.put("/small", b"", expect=0),
                store.put("/large", os.urandom(1_000_000), expect=0),
                return_exceptions=True,
            )
            assert isinstance(outcomes[1], DiskFull)
            assert isinstance(outcomes[0], StoreEntry)
            kept = await store.get("/0")
            assert kept is not None
            await store.delete("/0", expect=kept.revision)
        postgresql.query("DROP DATABASE crowded WITH (FORCE)")
        postgresql.query("DROP TABLESPACE small")


async def test_single_rows_do_not_wait_for_lists(
    shared_postgresql: PostgresProcess, fresh: PostgresConnection
) -> None:
    async with opened(fresh) as store:
        entry = await store.put("/a", b"", expect=0)
        slow = asyncio.ensure_future(store._fetch("SELECT pg_sleep(30)"))
        lists = [asyncio.ensure_future(store.list("/")) for _ in range(3)]
        await asyncio.wait(lists, timeout=0.2)
        async with asyncio.timeout(2):
            assert await store.newest() == entry.revision
            assert await store.get("/a") == entry
        assert not any(each.done() for each in lists)
        for each in (slow, *lists):
            each.cancel()
        await asyncio.wait((slow, *lists))


async def test_a_row_that_another_server_has_just_written_does_not_wait_for_lists(
    fresh: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(fresh) as one, opened(fresh) as two:
        monkeypatch.setattr(one, "_note", lambda revision: None)  # its notification is late
        slow = asyncio.ensure_future(one._fetch("SELECT pg_sleep(30)"))
        entry = await two.put("/a", b"", expect=0)
        async with asyncio.timeout(2):
            assert await one.get("/a") == entry
        slow.cancel()
        await asyncio.wait([slow])
