"""Traces, received by a collector: one span a request, one a draw, linked where requests shared it."""

import http.server
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.harness.ticketd import TicketServer

pytestmark = pytest.mark.any_engine

DEADLINE = 20.0


class Collector(http.server.ThreadingHTTPServer):
    """Keeps every span that is sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans: list[Span] = []
        self.service_names: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def receive(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            names = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            self.service_names.update(names)
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)


class _Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Collector)
        self.server.receive(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_draw_is_linked_to_every_request_that_it_served(collector: Collector, tmp_path: Path) -> None:
    requests = 40
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "tickets-under-test",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    with TicketServer(None, data_dir=tmp_path, settings=settings) as server:
        server.wait_ready()
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda _: server.get("/ticket/photos").status, range(requests)))
        assert server.terminate() == 0  # what has not been sent yet is sent at the end
    assert statuses == [200] * requests

    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        asked = [span for span in collector.spans if span.name == "GET /ticket"]
        if len(asked) == requests:
            break
        time.sleep(0.05)
    assert len(asked) == requests
    draws = [span for span in collector.spans if span.name == "draw"]
    linked = [link.span_id for draw in draws for link in draw.links]
    assert sorted(linked) == sorted(span.span_id for span in asked)
    assert all(not draw.parent_span_id for draw in draws)
    assert collector.service_names == {"tickets-under-test"}


def test_without_the_variables_nothing_is_sent(collector: Collector, tmp_path: Path) -> None:
    with TicketServer(None, data_dir=tmp_path, settings={"OTEL_SERVICE_NAME": "tickets-under-test"}) as server:
        server.wait_ready()
        assert server.get("/ticket/photos").status == 200
    assert collector.spans == []
