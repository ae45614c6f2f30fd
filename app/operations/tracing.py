"""Traces with OpenTelemetry, off unless the standard OTEL_* variables ask for them.

One span per request, and one per draw, linked to every request that shares it. When traces are off they cost nothing:
`service` passes no tracer on and builds no wrapper.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send

from app.common.errors import SettingsError
from app.common.version import VERSION
from app.databases.protocol import Draw, Drawn
from app.tickets.requests.observer import Observer
from app.tickets.requests.request import TicketRequest
from app.tickets.ring.ring import Member

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the environment enables traces: a collector is set, and neither the SDK nor the exporter is disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter == "otlp" or (exporter == "" and any(environment.get(name) for name in _ENDPOINTS))


class Tracing:
    """A tracer that sends to the collector of the OTEL_* variables."""

    def __init__(self) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingsError("OTEL_* asks for traces: install the extra ticket-server[tracing]") from error
        named = Resource({SERVICE_NAME: "ticket-server", SERVICE_VERSION: VERSION}).merge(
            OTELResourceDetector().detect()
        )
        self._provider: TracerProvider = TracerProvider(resource=named)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer: Tracer = self._provider.get_tracer("ticket-server", VERSION)

    async def close(self) -> None:
        """Send the remaining spans."""
        await asyncio.get_running_loop().run_in_executor(None, self._provider.shutdown)


class TracedRequests:
    """ASGI around the application: a server span for each request, a child of the caller's where it names one."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracer = tracing.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carrier = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        route = "/" + scope["path"].split("/", 2)[1]
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        with self._tracer.start_as_current_span(
            f"{scope['method']} {route}", context=extract(carrier), kind=SpanKind.SERVER, attributes=attributes
        ) as span:

            async def answer(message: Any) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            await self._app(scope, receive, answer)


class TracedTickets:
    """A span for each request for tickets, which has no ASGI around it: over HTTP (see ticket_endpoint.Watcher), or
    for each command, or several of the same that come together."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracer = tracing.tracer

    def begin(self, method: str, path: str, fields: Iterable[tuple[bytes, bytes]]) -> "Span":
        """The span of a request, a child of the caller's where its headers name one."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carrier = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in fields}
        route = "/" + path.split("/", 2)[1]
        attributes = {"http.request.method": method, "url.path": path}
        return self._tracer.start_span(
            f"{method} {route}", context=extract(carrier), kind=SpanKind.SERVER, attributes=attributes
        )

    def begin_commands(self, words: str, count: int) -> "Span":
        """The span of so many of the same command, which nobody can name the caller's span in."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        attributes: dict[str, str | int] = {
            "network.protocol.name": "redis",
            "tickets.command": words,
            "tickets.requests": count,
        }
        name = words.partition(" ")[0]
        return self._tracer.start_span(name, context=Context(), kind=SpanKind.SERVER, attributes=attributes)

    def end_commands(self, span: "Span", outcome: str) -> None:
        """End the span; `outcome`: "ok", or the first word of the error; "" where there was no reply."""
        if outcome:
            span.set_attribute("tickets.outcome", outcome)
        span.end()

    def end(self, span: "Span", status: int) -> None:
        """End the span; `status` is that of the answer, 0 where there was none."""
        if status:
            span.set_attribute("http.response.status_code", status)
        span.end()


class TracedStatements:
    """An observer that makes a span of each draw, linked to the requests that it draws for, and tells another one."""

    def __init__(self, observer: Observer, tracing: Tracing) -> None:
        self._observer = observer
        self._tracer = tracing.tracer
        self.gap = observer.gap
        self.violation = observer.violation
        self.retry = observer.retry

    def statement(
        self, member: Member, sequence: str, requests: Sequence[TicketRequest], sent_at: float, drawn: Drawn
    ) -> None:
        """See Observer.statement."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        self._observer.statement(member, sequence, requests, sent_at, drawn)
        links = [Link(request.trace.get_span_context()) for request in requests if request.trace is not None]
        attributes: dict[str, str | int] = {
            "db.system.name": member.database.system,
            "server.address": member.name,
            "db.collection.name": sequence,
            "tickets.count": sum(request.count for request in requests),
            "tickets.requests": len(links),
        }
        began = time.time_ns() - int((time.perf_counter() - sent_at) * 1e9)
        # not a child of one of the requests: it is linked to all of them alike
        span = self._tracer.start_span(
            "draw", context=Context(), kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=began
        )
        if not isinstance(drawn, Draw):
            span.record_exception(drawn)
            span.set_status(Status(StatusCode.ERROR, str(drawn)))
        span.end()
