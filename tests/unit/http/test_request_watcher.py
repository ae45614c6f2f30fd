"""Requests in the access log and in traces: those for tickets by us, all others by uvicorn and the application."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.common.errors import OutOfTime
from app.http.request_watcher import RequestWatcher
from app.http.uvicorn_adapter import access_logger
from app.operations.tracing import TracedTickets, Tracing
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import LAST, OTHER, PHOTOS, REFUSED, Bench, request

PARENT = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The access log, whatever other servers of this process have set."""
    logger = access_logger()
    before, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO, logger.name):
        yield caplog
    logger.propagate = before


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]


@virtual_time
async def test_every_request_is_in_the_access_log(logged: pytest.LogCaptureFixture) -> None:
    bench = Bench("right", watcher=RequestWatcher(None, log_access=True), access_log=True)
    token = "authorization: Bearer right"
    client = bench.connect()
    client.send(request("/ticket/photos?count=2", token))
    assert lines(logged) == []
    bench.issuer.answer()
    client.send(request("/ticket/%70hotos", token, method="POST"))
    bench.issuer.refuse(OutOfTime())
    await client.ask(REFUSED, request("/block/photos", token), request("/ticket/photos", method="HEAD"))
    await client.ask(request("/other?x=y", method="PUT", body=b"{}"), OTHER)
    gone = bench.connect()
    gone.send(request("/ticket/photos", token))
    gone.transport.abort()
    last = bench.connect()
    await last.ask(LAST.replace(b"1.1", b"1.0"))
    found = [
        '"GET /ticket/photos?count=2 HTTP/1.1" 200',
        '"POST /ticket/%70hotos HTTP/1.1" 503',
        '"GET /block/photos HTTP/1.1" 401',
        '"GET /block/photos HTTP/1.1" 422',
        '"HEAD /ticket/photos HTTP/1.1" 405',
        '"PUT /other?x=y HTTP/1.1" 200',
        '"GET /other HTTP/1.1" 200',
        '"GET /ticket/photos HTTP/1.0" 401',
    ]
    assert lines(logged) == [f"192.0.2.1:4711 - {line}" for line in found]
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_no_access_log_is_kept_unasked(logged: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.issuer.on_issue = bench.issuer.answer
    await bench.connect().ask(PHOTOS + OTHER)
    assert lines(logged) == []


@virtual_time
async def test_every_request_for_tickets_is_a_span() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = cast(Tracing, SimpleNamespace(tracer=provider.get_tracer("test")))
    bench = Bench(watcher=RequestWatcher(TracedTickets(tracing), log_access=False))
    client = bench.connect()
    client.send(request("/ticket/%70hotos?count=2", f"Traceparent: 00-{PARENT}-00f067aa0ba902b7-01"))
    trace: Any = bench.issuer.waiting[0].trace
    assert trace.is_recording()
    bench.issuer.answer()
    await client.ask(request("/block/photos", method="POST"), OTHER)
    client.send(PHOTOS)
    client.transport.abort()
    await settled()
    found = [
        (
            span.name,
            dict(span.attributes or {}).get("url.path"),
            (span.attributes or {}).get("http.response.status_code"),
        )
        for span in spans.get_finished_spans()
    ]
    assert found == [
        ("GET /ticket", "/ticket/photos", 200),
        ("POST /block", "/block/photos", 422),
        ("GET /ticket", "/ticket/photos", None),
    ]
    assert [f"{span.context.trace_id:032x}" == PARENT for span in spans.get_finished_spans()] == [True, False, False]
    assert not trace.is_recording()
    assert bench.metrics.in_flight == 0
