"""Redis as a ticket database: what no other engine has."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.databases.address import TLS
from app.databases.redis.session import UNREADABLE, RedisSession, connect
from app.databases.redis.url import parse
from app.databases.session import Book, Drawn, Mark, Note, Want, Write
from app.errors import DatabaseFailed, DatabaseRefused
from tests.engines.bench import ODD, Bench, certificate, record, server_bench
from tests.servers_processes import free_port
from tests.servers_shared import OwnServer

ACL = Path(__file__).parents[2] / "deploy/redis/users.acl"


@pytest.fixture
async def bench(own_server: OwnServer) -> AsyncIterator[Bench]:
    """A database of a server that the test may change."""
    bench = server_bench(own_server("redis"), "0")
    yield bench
    await bench.close()


async def test_the_account_of_the_deployment_may_do_what_a_session_does_and_nothing_else(bench: Bench) -> None:
    line = next(each for each in ACL.read_text(encoding="utf-8").splitlines() if each.startswith("user ticketd"))
    bench.run("ACL SETUSER " + line.removeprefix("user "))
    bench.address = replace(bench.address, user="ticketd", password="development-only-database-password")
    session = await bench.open()
    await session.make("photos", 53, 10)
    assert await session.raise_above({"photos": 20}) == {"photos": None}
    assert await session.draw([Want("photos", 3)]) == [Drawn(21, 3)]
    await record(session, "1.word")
    assert await session.write([Write(Book.MARKS, "a", None, Note(tenure="t"))], "1.word") == [True]
    await session.mark([Mark("a", "t", 5, 1, True)], "1.word")
    assert await session.page(Book.MARKS, "", 10) == [("a", Note(5, 1, "t", True))]
    assert (await session.look("one:1", Note(1))).facts.warnings == ()
    assert isinstance(session, RedisSession)
    for command in (("SET", "other", "1"), ("DEL", "{tickets}:ring"), ("FLUSHALL",), ("HSET", "other", "a", "1")):
        with pytest.raises(DatabaseRefused, match="does not give this user"):
            await session._line.ask(*command)


async def test_what_makes_it_less_than_durable_is_warned_of(bench: Bench) -> None:
    session = await bench.open()
    assert session.facts.warnings == ()
    for name, wrong, words in (
        ("appendfsync", "everysec", "appendfsync is not always"),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite is not no"),
        ("maxmemory-policy", "allkeys-lru", "which evicts counters"),
        ("appendonly", "no", "appendonly is not yes"),
    ):
        bench.run(f"CONFIG SET {name} {wrong}")
        assert any(words in warning for warning in (await session.look("one:1", Note())).facts.warnings)
    bench.run("CONFIG SET appendonly yes")
    bench.run("ACL SETUSER default -config")
    assert UNREADABLE in (await session.look("one:1", Note())).facts.warnings


async def test_a_replica_that_was_promoted_is_another_machine_and_so_has_another_life(bench: Bench) -> None:
    session = await bench.open()
    before = session.facts.machine
    bench.run("REPLICAOF 127.0.0.1 1")
    with pytest.raises(DatabaseFailed, match="read-only"):
        await bench.open()
    bench.run("REPLICAOF NO ONE")
    machine = (await bench.open()).facts.machine
    assert machine != before
    await session.write([Write(Book.LIVES, before, None, Note(1)), Write(Book.LIVES, machine, None, Note(2))], None)
    assert (await session.look("one:1", Note())).life == Note(2)


async def test_without_its_keys_or_its_memory_it_fails_and_its_scripts_come_back(bench: Bench) -> None:
    session = await bench.with_photos()
    assert await session.draw([Want("photos", 1)]) == [Drawn(1, 1)]
    bench.run("SCRIPT FLUSH")
    assert await session.draw([Want("photos", 1)]) == [Drawn(3, 1)]
    bench.run("CONFIG SET maxmemory 1")
    with pytest.raises(DatabaseFailed, match="out of memory"):
        await session.draw([Want("photos", 1)])
    bench.run("CONFIG SET maxmemory 0")
    bench.run("FLUSHALL")
    session = await bench.open(None)
    bench.run("DEL {tickets}:ring")
    with pytest.raises(DatabaseFailed, match="lost the ticket server's own keys"):
        await session.look("one:1", Note())


async def test_a_cluster_is_refused_by_name(own_server: OwnServer) -> None:
    server = own_server("redis", options=["--cluster-enabled", "yes", "--databases", "1"])
    with pytest.raises(DatabaseRefused, match="is a Redis Cluster"):
        await connect(parse(server.url("0")), ODD, 10.0)


async def test_the_certificate_of_a_server_with_tls_is_verified(own_server: OwnServer, tmp_path: Path) -> None:
    file, port = certificate(tmp_path, "server"), free_port()
    files = ["--tls-cert-file", f"{file}", "--tls-key-file", f"{file}.key", "--tls-ca-cert-file", f"{file}"]
    own_server("redis", options=["--tls-port", f"{port}", *files, "--tls-auth-clients", "no"])
    address = parse(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={file}")
    (await connect(address, None, 10.0)).abort()
    with pytest.raises(DatabaseFailed, match="could not agree on TLS"):
        await connect(replace(address, tls=TLS()), None, 10.0)


async def test_what_was_not_asked_for_ends_the_connection(bench: Bench) -> None:
    session = await bench.open()
    assert isinstance(session, RedisSession)
    line = session._line
    assert await line.ask("PING") == "PONG"
    line.data_received(b"+OK\r\n")
    with pytest.raises(DatabaseFailed, match="makes no sense"):
        await line.ask("PING")
