"""Who watches single requests: the access log, and traces with OpenTelemetry, a span for each request."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from app.errors import SettingsError
from app.version import VERSION

log = logging.getLogger("app.access")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NANOSECONDS = 1_000_000_000


class Seen(NamedTuple):
    """A request that has been answered.

    protocol: `http` or `redis`. what: method and path with the query, or the command; never a token. sequence: if it is
    about one. client: the client's address. status: the HTTP status, `ok`, or an error's word. began: in seconds since
    1970. seconds: how long it took. traceparent: what the client named as the span that it belongs to.
    """

    protocol: str
    what: str
    sequence: str | None
    client: str
    status: str
    began: float
    seconds: float
    traceparent: str | None = None


class Watch:
    """Writes the access log, and sends spans to the collector that the OTEL_* variables name.

    logs, traces: whether it does. Raises SettingsError where the packages for traces are not installed.
    """

    def __init__(self, logs: bool, traces: bool) -> None:
        self._logs, self._provider = logs, None
        if not traces:
            return
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise SettingsError("OTEL_* asks for traces; expected the extra: ticket-server[tracing]") from error
        named = Resource({SERVICE_NAME: "ticket-server", SERVICE_VERSION: VERSION})
        self._provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("ticket-server", VERSION)
        self._context_of, self._no_parent = TraceContextTextMapPropagator().extract, Context()
        self._server, self._failed = trace.SpanKind.SERVER, trace.StatusCode.ERROR

    def saw(self, seen: Seen) -> None:
        """Take note of a request. It never waits."""
        if self._logs:
            fields = {"client": seen.client, "status": seen.status, "ms": round(seen.seconds * 1000, 3)}
            log.info("%s", seen.what, extra={"fields": fields})
        if self._provider is None:
            return
        method, _, path = seen.what.partition(" ")
        path = path.partition("?")[0]
        attributes: dict[str, str | int] = {"network.protocol.name": seen.protocol, "tickets.status": seen.status}
        name = method
        if seen.protocol == "http":
            name = f"{method} /{path.split('/', 2)[1]}" if path.startswith("/") else method
            attributes |= {"http.request.method": method, "url.path": path}
            attributes["http.response.status_code"] = int(seen.status)
        if seen.sequence is not None:
            attributes["tickets.sequence"] = seen.sequence
        parent = self._context_of({"traceparent": seen.traceparent or ""}, self._no_parent)
        began = int(seen.began * _NANOSECONDS)
        span = self._tracer.start_span(name, parent, self._server, attributes, start_time=began)
        if seen.status.startswith("5"):
            span.set_status(self._failed)
        span.end(began + int(seen.seconds * _NANOSECONDS))

    def close(self) -> None:
        """Send the spans that are left. Waits for the collector."""
        if self._provider is not None:
            self._provider.shutdown()


def make_watch(logs: bool, environment: Mapping[str, str]) -> Watch | None:
    """Return who watches requests; None where nobody does.

    logs: whether an access log is wanted. environment: its OTEL_* variables say whether traces are: a collector is
    named, and nothing is disabled. Raises SettingsError where one of them cannot be used, or the packages for traces
    are not installed.
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if exporter not in {"", "otlp", "none"} and not is_disabled:
        raise SettingsError(f"OTEL_TRACES_EXPORTER is {exporter[:60]!r}; expected otlp or none")
    is_named = exporter == "otlp" or (not exporter and any(map(environment.get, _ENDPOINTS)))
    traces = is_named and not is_disabled
    return Watch(logs, traces) if logs or traces else None
