"""The alerts end to end: a real Prometheus scrapes real ticket servers and a real HAProxy, while something is wrong.

What each alert says of every other case is tested with promtool, in deploy/prometheus/rules_test.yml.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.front import HAProxy
from tests.deploy.prometheus import DEPLOYED, PATIENCE, Prometheus, faster
from tests.harness.processes import free_port
from tests.harness.ticketd import TicketServer

OF_CLIENTS, OF_PROMETHEUS, NEWER = "token-of-the-clients-1", "token-of-prometheus-1", "token-of-the-clients-2"


class Stage:
    """Two ticket servers on one embedded pair, HAProxy in front of them, and Prometheus."""

    def __init__(self, data: Path) -> None:
        settings = {"TICKETS_TOKENS": f"{OF_CLIENTS} {OF_PROMETHEUS}"}
        self.servers = [TicketServer(data_dir=data, settings=settings) for _ in range(2)]
        self.addresses = [server.name for server in self.servers]
        self.haproxy = HAProxy([*self.addresses, f"127.0.0.1:{free_port()}"])
        targets = {
            "tickets": self.addresses,
            "tickets-ready": self.addresses,
            "haproxy": [f"127.0.0.1:{self.haproxy.statistics_port}"],
        }
        self.prometheus = Prometheus(targets, OF_PROMETHEUS)

    def __enter__(self) -> "Stage":
        with contextlib.ExitStack() as started:
            for server in self.servers:
                started.callback(server.close)
                server.start()
            for server in self.servers:
                server.wait_ready()
            started.enter_context(self.haproxy)
            self.haproxy.wait_states("UP", "UP", "DOWN")
            started.enter_context(self.prometheus)
            self._started = started.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._started.close()

    def set_tokens(self, *tokens: str) -> None:
        """Restart the servers with these tokens, one after the other: Prometheus sees one that is ready at any time."""
        for server in self.servers:
            server.environment["TICKETS_TOKENS"] = " ".join(tokens)
            server.restart()
            server.wait_ready()
            self.prometheus.wait_series(f'up{{job="tickets-ready", instance="{server.name}"}} == 1')

    def draw(self) -> None:
        """A request of a client to each server."""
        for server in self.servers:
            server.get("/ticket/photos", headers={"Authorization": f"Bearer {OF_CLIENTS}"})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("ticket-data")) as made:
        yield made


def test_the_expressions_are_ours() -> None:
    rules = (DEPLOYED / "rules.yml").read_text(encoding="utf-8")
    assert len(re.findall(r"(?m)^ +for:", rules)) > 10
    for minute, short in ((None, {PATIENCE}), (6.0, {"3000ms", "6000ms", "12000ms", "30000ms"})):
        copied = [rule for group in faster(rules, minute)["groups"] for rule in group["rules"]]
        for rule in copied:
            assert " ".join(rule["expr"].split()) in " ".join(rules.split())
        assert short <= {rule["for"] for rule in copied if "for" in rule}
        assert all(re.fullmatch(rf"{PATIENCE}|\d+ms", rule["for"]) for rule in copied if "for" in rule)


def test_clients_whose_token_is_not_known_any_more(tmp_path: Path) -> None:
    """On a stage of its own: who has given tickets in the last two minutes does not deny everybody."""
    with Stage(tmp_path) as stage:
        prometheus = stage.prometheus
        stage.set_tokens(NEWER, OF_PROMETHEUS)
        prometheus.wait_firing("TicketsDenied", meanwhile=stage.draw)
        for address in stage.addresses:
            of_this_server = f'ALERTS{{alertname="TicketsDenied", alertstate="firing", instance="{address}"}}'
            prometheus.wait_series(of_this_server, meanwhile=stage.draw)
        stage.set_tokens(OF_CLIENTS, NEWER, OF_PROMETHEUS)
        prometheus.wait_firing(meanwhile=stage.draw)
        assert prometheus.has_fired() - {"TicketServerDown"} == {"TicketsDenied"}  # they were restarted


def test_a_scrape_whose_token_is_not_known_wakes_nobody(stage: Stage) -> None:
    stage.set_tokens(OF_CLIENTS)
    stage.prometheus.wait_firing("TicketMetricsRefused", meanwhile=stage.draw)
    stage.set_tokens(OF_CLIENTS, OF_PROMETHEUS)
    stage.prometheus.wait_firing(meanwhile=stage.draw)
    assert stage.prometheus.has_fired() - {"TicketServerDown"} == {"TicketMetricsRefused"}  # they were restarted


def test_a_load_balancer_that_is_dead(stage: Stage) -> None:
    stage.haproxy.kill()
    stage.prometheus.wait_firing("TicketFrontDown")
    stage.haproxy.start()
    stage.prometheus.wait_firing()


def test_a_load_balancer_that_finds_no_server(stage: Stage) -> None:
    stage.haproxy.kill()
    stage.haproxy.start([f"127.0.0.1:{free_port()}" for _ in range(3)])
    stage.prometheus.wait_firing("TicketFrontHasNoServer")
    stage.haproxy.kill()
    stage.haproxy.start([*stage.addresses, f"127.0.0.1:{free_port()}"])
    stage.prometheus.wait_firing()


def test_servers_that_are_dead(stage: Stage) -> None:
    for server in stage.servers:
        server.kill()
    stage.prometheus.wait_firing("TicketServerDown", "TicketsUnavailable")
    for server in stage.servers:
        server.start()
    stage.prometheus.wait_firing()


def test_what_the_rules_read_of_haproxy_is_there(stage: Stage) -> None:
    rules = (DEPLOYED / "rules.yml").read_text(encoding="utf-8")
    selectors = set(re.findall(r"haproxy_[a-z_]+\{[^}]*\}", rules))
    assert len(selectors) >= 3
    for selector in selectors:
        assert stage.prometheus.query(selector), selector
