"""Commands in the access log and in traces."""

import logging
from types import SimpleNamespace
from typing import cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.common.errors import NoTicketDatabase, SequenceExhausted
from app.operations.tracing import TracedTickets, Tracing
from app.redis.watcher import CommandWatcher
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.redis_bench import INCR, OTHER, Bench, command


@virtual_time
async def test_a_line_for_each_command_or_several_of_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(watcher=CommandWatcher(None, log_access=True))
    client = bench.connect()
    client.send(INCR * 3 + command("ticket.block", "photos", "5") + OTHER + command("INCR", "x\r\ny" * 99))
    await settled()
    bench.issuer.answer()  # what was gathered before the block is asked for before it
    bench.issuer.refuse(NoTicketDatabase("none"))
    client.transport.lose("lost")
    await settled()
    lines = [record.getMessage() for record in caplog.records if record.name == "app.redis.access"]
    assert lines == ['192.0.2.1 - "INCR photos" ok x3', '192.0.2.1 - "TICKET.BLOCK photos" TRYAGAIN']


@virtual_time
async def test_who_has_gone_is_told_of_once() -> None:
    watched: list[str] = []

    class Watcher:
        def begin(self, words: str, count: int) -> object:
            watched.append(f"{words} x{count}")
            return None

        def end(self, place: object, words: str, count: int, trace: object, outcome: str) -> None:
            del place, trace
            watched.append(f"{words} x{count} {outcome or 'gone'}")

    bench = Bench(watcher=Watcher())
    stays, goes = bench.connect(), bench.connect()
    goes.send(INCR * 2)
    stays.send(INCR)
    await settled()
    goes.transport.lose("lost")
    await settled()
    bench.issuer.answer()
    assert watched == ["INCR photos x2", "INCR photos x1", "INCR photos x2 gone", "INCR photos x1 ok"]


@virtual_time
async def test_a_span_for_each_command_or_several_of_the_same() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = cast(Tracing, SimpleNamespace(tracer=provider.get_tracer("test")))
    bench = Bench(watcher=CommandWatcher(TracedTickets(tracing), log_access=False))
    client = bench.connect()
    client.send(INCR * 2 + OTHER)
    await settled()
    client.send(INCR)
    await settled()
    bench.issuer.refuse(SequenceExhausted("photos is near its end"))
    for _ in range(2):
        bench.issuer.waiting[-1].answer([1])
        bench.issuer.waiting.pop()
        await settled()
    bench.issuer.answer()
    client.transport.lose("lost")
    await settled()
    found = [
        (span.name, (span.attributes or {})["tickets.requests"], (span.attributes or {}).get("tickets.outcome"))
        for span in spans.get_finished_spans()
    ]
    assert found == [("INCR", 2, "apart"), ("INCR", 1, "ok"), ("INCR", 1, None)]
