"""/metrics and the log, as the tools that read them see them."""

import json
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

DECLARED = {
    "tickets_issued": "counter", "tickets_requests": "counter", "tickets_failovers": "counter",
    "tickets_retries": "counter", "tickets_quarantines": "counter", "tickets_fence_violations": "counter",
    "tickets_gaps": "counter", "tickets_database_up": "gauge", "tickets_database_quarantined": "gauge",
    "tickets_database_unprotected": "gauge", "tickets_connections": "gauge", "tickets_in_flight": "gauge",
    "tickets_drift": "gauge", "tickets_headroom": "gauge", "tickets_headroom_ratio": "gauge", "tickets_ready": "gauge",
    "tickets_build_info": "gauge", "tickets_issue_seconds": "histogram", "tickets_statement_seconds": "histogram",
    "tickets_statement_tickets": "histogram", "tickets_sequences": "gauge", "tickets_sequences_folded": "gauge",
    "tickets_client_connections": "gauge", "tickets_client_connections_refused": "counter", "tickets_denied": "counter",
    "tickets_worker": "gauge", "tickets_worker_lease_seconds": "gauge", "tickets_clock_ahead_seconds": "gauge",
    "tickets_reserve": "gauge",
    "tickets_sequence_end_timestamp_seconds": "gauge",
}  # fmt: skip
LABELS = {"sequence", "database", "offset", "endpoint", "outcome", "cause", "rule", "version", "le", "what"}
_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


class Sample(NamedTuple):
    """One line of the exposition."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """One answer of /metrics, read strictly."""

    def __init__(self, server: TicketServer) -> None:
        reply = server.get("/metrics")
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.kinds: dict[str, str] = {}
        self.helped: set[str] = set()
        self.samples: list[Sample] = []
        assert reply.text.endswith("\n")
        for line in reply.text.splitlines():
            if line.startswith("# HELP "):
                self.helped.add(line.split(" ", 3)[2])
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.kinds
                self.kinds[name] = kind
            else:
                found = _SAMPLE.fullmatch(line)
                assert found, line
                labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
                self.samples.append(Sample(found[1], labels, float(found[3])))

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels among theirs."""
        return math.fsum(
            each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()
        )


def test_every_metric_is_declared_named_and_labelled_as_it_should_be(ticket_server: TicketServer) -> None:
    ticket_server.ticket("photos")
    scrape = Scrape(ticket_server)
    found = {re.sub("_total$", "", name): kind for name, kind in scrape.kinds.items()}
    assert found == DECLARED
    assert scrape.helped == scrape.kinds.keys()
    for name, kind in scrape.kinds.items():
        assert (kind == "counter") is name.endswith("_total")
    seen = [(each.name, tuple(sorted(each.labels.items()))) for each in scrape.samples]
    assert len(seen) == len(set(seen))
    assert {label for each in scrape.samples for label in each.labels} <= LABELS


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
        "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
    ],
    ids=["Prometheus 2", "Prometheus 3"],
)
def test_readiness_can_be_scraped_where_no_token_is_required(ticket_server: TicketServer, accept: str) -> None:
    reply = ticket_server.get("/readyz", headers={"Accept": accept})
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.text.splitlines()[-1] == "tickets_ready 1.0"
    assert reply.text in ticket_server.get("/metrics").text


@pytest.mark.parametrize("accept", ["*/*", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json", ""])
def test_to_everybody_else_readiness_is_json(ticket_server: TicketServer, accept: str) -> None:
    assert ticket_server.get("/readyz", headers={"Accept": accept}).json() == {"status": "ready"}


def test_histograms_add_up(ticket_server: TicketServer) -> None:
    for _ in range(5):
        ticket_server.ticket("photos")
    scrape = Scrape(ticket_server)
    for name in [name for name, kind in DECLARED.items() if kind == "histogram"]:
        groups: dict[str, list[Sample]] = {}
        for each in scrape.samples:
            if each.name == f"{name}_bucket":
                groups.setdefault(each.labels.get("database", ""), []).append(each)
        assert groups
        for database, buckets in groups.items():
            bounds = [float(each.labels["le"]) for each in buckets]
            counts = [each.value for each in buckets]
            assert bounds == sorted(bounds)
            assert counts == sorted(counts)
            assert bounds[-1] == math.inf
            labels = {"database": database} if database else {}
            assert scrape.value(f"{name}_count", **labels) == counts[-1]


def test_what_is_done_is_counted(ticket_server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    before = Scrape(ticket_server)
    assert ticket_server.put(f"/sequence/{name}", json={"bits": 32}).status == 201
    ticket_server.ticket(name)
    ticket_server.get(f"/ticket/{name}?count=10")
    ticket_server.get(f"/block/{name}?size=100")
    ticket_server.get(f"/ticket/{name}?count=0")
    ticket_server.request("HEAD", f"/ticket/{name}")
    after = Scrape(ticket_server)

    def more(metric: str, **labels: str) -> float:
        return after.value(metric, **labels) - before.value(metric, **labels)

    assert after.value("tickets_issued_total", sequence=name) == 111
    assert more("tickets_requests_total", endpoint="ticket", outcome="ok") == 2
    assert more("tickets_requests_total", endpoint="block", outcome="ok") == 1
    assert more("tickets_requests_total", endpoint="ticket", outcome="invalid") == 2
    assert more("tickets_issue_seconds_count") == 3
    assert more("tickets_statement_tickets_sum") >= 111
    assert 0.99 < after.value("tickets_headroom_ratio", sequence=name) / 2 <= 1
    assert after.value("tickets_ready") == 1
    assert after.value("tickets_database_up") == 2
    assert after.value("tickets_in_flight") == 0


def test_kinds_of_sequences_are_counted_and_their_worker_and_end_are_shown(
    ticket_server: TicketServer, new_name: Callable[[], str]
) -> None:
    snowflakes, likes, sessions = new_name(), new_name(), new_name()
    epoch = int(time.time() * 1000) - 1000
    bodies: dict[str, dict[str, object]] = {
        snowflakes: {"kind": "snowflake", "epoch": epoch}, likes: {"kind": "instagram"}, sessions: {"kind": "uuid7"},
    }  # fmt: skip
    for name, body in bodies.items():
        assert ticket_server.put(f"/sequence/{name}", json=body).status == 201
        ticket_server.get(f"/ticket/{name}?count=7")
        assert ticket_server.get(f"/ticket/{name}").status == 200
    worker = ticket_server.get(f"/decode/{snowflakes}/{ticket_server.ticket(snowflakes)}").json()
    assert ticket_server.get(f"/block/{sessions}?size=5").status == 409
    scrape = Scrape(ticket_server)
    for name in (likes, sessions):
        assert scrape.value("tickets_issued_total", sequence=name) == 8
    assert scrape.value("tickets_worker") == 32 * worker["datacenter"] + worker["worker"]
    assert 90 < scrape.value("tickets_worker_lease_seconds") <= 121
    assert abs(scrape.value("tickets_clock_ahead_seconds")) < 1
    end = scrape.value("tickets_sequence_end_timestamp_seconds", sequence=snowflakes)
    assert end == (epoch + 2**41) / 1000
    assert not [each for each in scrape.samples if each.name == "tickets_headroom" and each.labels["sequence"] == likes]
    assert scrape.value("tickets_requests_total", endpoint="block", outcome="invalid") >= 1


def test_what_does_not_exist_is_never_a_label(ticket_server: TicketServer) -> None:
    before = len(Scrape(ticket_server).samples)
    paths = [f"/ticket/no_such_{i}" if i % 2 else f"/block/no_such_{i}?size=1" for i in range(200)]
    with ThreadPoolExecutor(20) as clients:  # one after the other waits for a look at the tables each
        assert {answer.status for answer in clients.map(ticket_server.get, paths)} == {404}
    ticket_server.get("/sequence/no_such_sequence")
    ticket_server.get('/ticket/x"%0Ay')
    scrape = Scrape(ticket_server)
    assert not [each for each in scrape.samples if "no_such" in str(each.labels)]
    assert len(scrape.samples) <= before + 4  # a new outcome or two


def test_a_database_that_goes_down_is_seen_and_logged_once(own_pair: MySQLPair) -> None:
    even = own_pair.even
    with TicketServer(own_pair.urls, settings={"TICKETS_LOG_FORMAT": "json"}) as server:
        server.wait_health("pass", 60)
        even.kill()
        server.wait_database(even.name, "down")
        for _ in range(200):
            server.ticket("photos")
        scrape = Scrape(server)
        assert scrape.value("tickets_database_up", database=even.name) == 0
        assert scrape.value("tickets_database_up", database=own_pair.odd.name) == 1
        assert scrape.value("tickets_database_unprotected", database=own_pair.odd.name) == 1
        even.restart()
        wait_until(lambda: Scrape(server).value("tickets_database_up") == 2, 60, "both to be up")
        server.terminate()
        lines = [json.loads(line) for line in server.log_text().splitlines()]
    about = [(each["level"], each["message"]) for each in lines if each.get("name") == even.name]
    assert about.count(("info", "database up")) == 2
    assert 1 <= len([each for each in about if each == ("warning", "database down")]) <= 4  # one for each new reason
    assert len(lines) < 60


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_ticket_leaves_no_line_in_the_log(style: str) -> None:
    with TicketServer(settings={**PATIENT, "TICKETS_LOG_FORMAT": style}) as server:
        server.wait_ready()
        server.ticket("photos")
        before = server.log_text()
        for _ in range(50):
            server.ticket("photos")
            server.get("/ticket/photos?count=0")
            server.get("/healthz")
        after = server.log_text()
        assert after == before
        lines = after.splitlines()
        if style == "json":
            for line in lines:
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", json.loads(line)["time"])
        else:
            for line in lines:
                assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING) \S", line)


def test_an_access_log_is_kept_if_asked_for() -> None:
    with TicketServer(settings={**PATIENT, "TICKETS_ACCESS_LOG": "true"}) as server:
        server.wait_ready()
        server.ticket("photos")
        assert '"GET /ticket/photos HTTP/1.1" 200' in server.log_text()
