"""The access log, and spans as OpenTelemetry's own exporter in memory keeps them."""

import logging

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.errors import SettingsError
from app.operations.watch import Seen, Watch, make_watch

SEEN = Seen("http", "GET /ticket/photos?count=2", "photos", "10.0.0.7", "200", 1_780_000_000.5, 0.25)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_nobody_watches_unless_the_settings_ask_for_it_and_a_misspelt_exporter_stops_the_start() -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    for more in ({"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}):
        assert make_watch(False, {}) is make_watch(False, named | more) is None
    for environment in (named, {"OTEL_TRACES_EXPORTER": "otlp"}):
        watch = make_watch(False, environment)
        assert watch is not None
        watch.close()
    assert make_watch(True, {}) is not None
    with pytest.raises(SettingsError, match="OTEL_TRACES_EXPORTER is 'otpl'; expected otlp or none"):
        make_watch(False, {"OTEL_TRACES_EXPORTER": "otpl"})


def test_the_access_log_has_a_line_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Watch(logs=True, traces=False).saw(SEEN)
    (record,) = caplog.records
    assert record.getMessage() == "GET /ticket/photos?count=2"
    assert record.__dict__["fields"] == {"client": "10.0.0.7", "status": "200", "ms": 250.0}


def test_a_span_has_the_request_its_time_and_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ENDPOINT", "http://127.0.0.1:1"), ("TIMEOUT", "0.1")):  # nobody listens there
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    watch, kept = Watch(logs=False, traces=True), InMemorySpanExporter()
    assert watch._provider is not None
    watch._provider.add_span_processor(SimpleSpanProcessor(kept))
    watch.saw(SEEN._replace(traceparent=PARENT))
    watch.saw(Seen("redis", "INCR photos", "photos", "10.0.0.7", "TRYAGAIN", 1_780_000_000.0, 0.001))
    watch.saw(SEEN._replace(status="503"))
    http, redis, failed = kept.get_finished_spans()
    assert (http.name, http.attributes and http.attributes["http.response.status_code"]) == ("GET /ticket", 200)
    assert http.parent is not None
    assert http.parent.span_id == int("b7ad6b7169203331", 16)
    assert ((http.end_time or 0) - (http.start_time or 0)) / 1e9 == pytest.approx(0.25)
    assert (redis.name, redis.parent) == ("INCR", None)
    assert not failed.status.is_ok
    watch.close()
