"""Traces with OpenTelemetry, off unless the standard OTEL_* variables ask for them.

One span per request, and one per draw, linked to every request that shares it. When traces are off they cost nothing:
`service` builds plain lanes and no wrapper.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from app.common.errors import SettingsError
from app.common.version import VERSION
from app.databases.protocol import Draw
from app.tickets.lane import Lane, LaneLedger
from app.tickets.observer import Observer
from app.tickets.ring import Member, Ring
from app.tickets.waiters import Waiter

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, Tracer

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


class TracedLane(Lane):
    """A lane whose draws are spans, each linked to the requests that it draws for."""

    def __init__(
        self, sequence: str, member: Member, ring: Ring, ledger: LaneLedger, observer: Observer, *, tracing: Tracing
    ) -> None:
        super().__init__(sequence, member, ring, ledger, observer)
        self._tracer = tracing.tracer
        self._contexts: WeakKeyDictionary[Waiter, SpanContext] = WeakKeyDictionary()

    def ask(self, waiter: Waiter) -> None:
        """See Lane.ask."""
        from opentelemetry.trace import get_current_span

        self._contexts[waiter] = get_current_span().get_span_context()
        super().ask(waiter)

    def _draws_at_once(self, batch: Sequence[Waiter], total: int) -> bool:
        """Every draw is a task's: a span has to be around it."""
        return False

    async def draw(self, count: int) -> Draw:
        """See Lane.draw."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind

        links = [Link(self._contexts[waiter]) for waiter in self._under_way if waiter in self._contexts]
        attributes: dict[str, str | int] = {
            "db.system.name": "mysql",
            "server.address": self.member.name,
            "db.collection.name": self.sequence,
            "tickets.count": count,
            "tickets.requests": len(links),
        }
        # no child of the request that started the lane's task: that one is linked like the others
        with self._tracer.start_as_current_span(
            "draw", context=Context(), kind=SpanKind.CLIENT, attributes=attributes, links=links
        ):
            return await super().draw(count)
