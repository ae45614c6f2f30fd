"""The first ticket of many sequences: what a server that has just started has to do before it can draw."""

import http.client
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.model import CaseFailed, Sample, percentile


def measure(port: int, names: Sequence[str], connections: int) -> Sample:
    """One ticket of each of these sequences, the names shared out among the connections."""
    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        shares = list(pool.map(lambda first: _take(port, names[first::connections]), range(connections)))
    took = time.perf_counter() - began
    latencies = sorted(latency for share, _bad in shares for latency in share)
    bad = sum(bad for _share, bad in shares)
    if not latencies:
        raise CaseFailed("no request succeeded")
    return Sample(
        len(latencies) / took,
        percentile(latencies, 50) * 1000,
        percentile(latencies, 99) * 1000,
        {"failed requests": bad} if bad else {},
    )


def _take(port: int, names: Sequence[str]) -> tuple[list[float], int]:
    """How long each took, in seconds, and how many failed."""
    latencies: list[float] = []
    bad = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for name in names:
        began = time.perf_counter()
        try:
            connection.request("GET", f"/ticket/{name}")
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            bad += 1
            continue
        if answer.status == 200:
            latencies.append(time.perf_counter() - began)
        else:
            bad += 1
    connection.close()
    return latencies, bad
