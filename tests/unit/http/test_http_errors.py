"""Errors that nobody expects: a line in the log, the end of that connection, and nobody else notices."""

from typing import Any

import pytest

from app.http.tickets.head import RequestHead
from app.http.tickets.protocol import TicketProtocol
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import ALBUMS, OTHER, PHOTOS, REFUSED, Bench, Client, ids, request, statuses


class Broken(Exception):
    """What nobody expects."""


def fail(*_: object, **__: object) -> Any:
    raise Broken("nobody expects this")


class BrokenWatcher:
    """Fails for `/ticket/photos`, at the beginning or at the end."""

    def __init__(self, where: str) -> None:
        self.where = where

    def begin(self, protocol: TicketProtocol, head: RequestHead) -> object:
        return fail() if self.where == "begin" and head.place is not None and head.place.name == "photos" else None

    def end(self, protocol: TicketProtocol, head: RequestHead, trace: object, status: int) -> None:
        if self.where == "end" and head.place is not None and head.place.name == "photos":
            fail()


async def assert_cut(bench: Bench, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """This connection is cut, the log says why, and another one is served."""
    await settled()
    assert client.transport.calls[-1] == "abort"
    assert "Broken: nobody expects this" in caplog.text
    assert len(caplog.records) == 1
    assert bench.metrics.in_flight == 0
    bench.issuer.waiting.clear()
    bench.issuer.on_issue = bench.issuer.answer
    assert statuses(await bench.connect().ask(ALBUMS + OTHER)) == [200, 200]


@pytest.mark.parametrize("before", [b"", ALBUMS], ids=["at once", "in its turn"])
@virtual_time
async def test_an_issuer_that_breaks(bench: Bench, caplog: pytest.LogCaptureFixture, before: bytes) -> None:
    client, other = bench.connect(), bench.connect()
    if before:
        client.send(before)
    other.send(ALBUMS)
    bench.issuer.on_issue = fail
    client.send(PHOTOS + ALBUMS)
    if before:
        bench.issuer.answer()
        assert statuses(client.take()) == [200]
    bench.issuer.on_issue = lambda: None
    await settled()
    bench.issuer.answer()
    assert len(ids(other.take())) == 1
    await assert_cut(bench, client, caplog)
    assert bench.outcomes()["ticket", "error"] == 1


@pytest.mark.parametrize("target", [PHOTOS, REFUSED], ids=["answered", "refused"])
@pytest.mark.parametrize("where", ["begin", "end"])
@virtual_time
async def test_a_watcher_that_breaks(caplog: pytest.LogCaptureFixture, where: str, target: bytes) -> None:
    bench = Bench(watcher=BrokenWatcher(where))
    client, other = bench.connect(), bench.connect()
    client.send(target + ALBUMS)
    other.send(ALBUMS)
    for _ in bench.issuer.waiting.copy():
        bench.issuer.answer()  # as a lane that answers one after the other
    assert len(ids(other.take())) == 1
    await assert_cut(bench, client, caplog)
    assert bench.outcomes()["ticket" if target == PHOTOS else "block", "error"] == 1


@virtual_time
async def test_a_response_that_cannot_be_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.connect()
    client.send(PHOTOS + ALBUMS)
    client.transport.on_write = fail
    bench.issuer.answer()
    await assert_cut(bench, client, caplog)
    assert bench.outcomes()["ticket", "error"] == 1


@virtual_time
async def test_a_refusal_that_cannot_be_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.connect()
    client.transport.on_write = fail
    client.send(b"no request\r\n\r\n")
    await assert_cut(bench, client, caplog)


@pytest.mark.parametrize("name", ["data_received", "connection_made"])
@virtual_time
async def test_an_inner_protocol_that_breaks(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    client, later = bench.connect(), bench.connect()
    later.send(PHOTOS + OTHER)
    with monkeypatch.context() as patch:
        patch.setattr(f"uvicorn.protocols.http.httptools_impl.HttpToolsProtocol.{name}", fail)
        client.send(request("/other", method="POST", body=b"x"))
        await settled()
        bench.issuer.answer()
    assert statuses(later.take()) == [200]
    assert later.transport.calls[-1] == "abort"
    assert len(caplog.records) == 2
    caplog.records.pop()
    await assert_cut(bench, client, caplog)


@virtual_time
async def test_an_inner_protocol_that_breaks_within_a_body(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = bench.connect()
    client.send(request("/other", method="POST", body=b"xy")[:-1])
    with monkeypatch.context() as patch:
        patch.setattr("uvicorn.protocols.http.httptools_impl.HttpToolsProtocol.data_received", fail)
        client.send(b"y")
    await assert_cut(bench, client, caplog)


@virtual_time
async def test_an_application_that_breaks_is_named_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.connect()
    assert statuses(await client.ask(request("/crash"))) == [500]
    assert "before the response" in caplog.text
    assert client.transport.calls == ["write", "close"]
