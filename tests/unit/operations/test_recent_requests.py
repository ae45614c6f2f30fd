"""Latency and errors of the last minute."""

import math

import pytest

from app.operations.metrics import SECONDS, Metrics
from app.operations.recent_requests import INTERVALS, RecentRequests


def test_at_first_nothing_is_known() -> None:
    recent = RecentRequests(Metrics()).now
    assert (recent.latency(0.5), recent.latency(0.99), recent.failed, recent.failed_share) == (None, None, 0, 0)


def test_the_latency_lies_in_the_bucket_of_the_request() -> None:
    metrics = Metrics()
    requests = RecentRequests(metrics)
    metrics.requests_answered("ticket", 0.002, 98)
    metrics.requests_answered("block", 0.2, 2)
    median, slow = requests.now.latency(0.5), requests.now.latency(0.99)
    assert median == pytest.approx(0.001 + 0.0015 * 50 / 98)
    assert slow == pytest.approx(0.1 + 0.15 * 1 / 2)


def test_beyond_the_last_bucket_the_latency_has_no_bound() -> None:
    metrics = Metrics()
    requests = RecentRequests(metrics)
    metrics.requests_answered("ticket", 2 * SECONDS[-1], 1)
    assert requests.now.latency(0.5) == math.inf


def test_requests_of_more_than_a_minute_ago_do_not_count() -> None:
    metrics = Metrics()
    requests = RecentRequests(metrics)
    metrics.requests_answered("ticket", 1.0, 5)
    metrics.requests_refused("ticket", "unavailable", 5)
    for _ in range(INTERVALS):
        requests.sample()
        assert requests.now.failed_share == 0.5
    requests.sample()
    assert (requests.now.latency(0.5), requests.now.failed) == (None, 0)
    metrics.requests_answered("ticket", 0.0001, 1)
    assert requests.now.latency(0.5) < SECONDS[0]  # type: ignore[operator]


def test_what_a_client_did_wrong_is_no_error() -> None:
    metrics = Metrics()
    requests = RecentRequests(metrics)
    for outcome in ("invalid", "unknown", "exhausted", "denied", "draining"):
        metrics.requests_refused("ticket", outcome, 1)
    for outcome in ("unavailable", "timeout", "clock", "error"):
        metrics.requests_refused("block", outcome, 1)
    assert requests.now.failed == 4
