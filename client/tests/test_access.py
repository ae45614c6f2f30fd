"""Tokens, which are nowhere but where they belong; https:// URLs; and `ensure`, which takes an admin token."""

from __future__ import annotations

import json
import logging
import pickle
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from lying_server import DEADLINE, Answer, Client, Honest, Said, Serve, http, problem
from ticketd_client import InvalidRequest, NotAllowed, TicketError, TicketsUnavailable

TOKEN = "s3cret\\" + "0123456789" * 3


def test_a_token_is_sent_with_each_request_or_connection(serve: Serve, client: Client) -> None:
    def known(asked: str) -> Said:
        if asked.startswith("AUTH"):
            return b"+OK\r\n" if asked == f"AUTH {TOKEN}" else b"-WRONGPASS this token is not known\r\n"
        return honest(asked)

    honest = Honest()
    server = serve(known)
    for url in (server.url, server.redis_url, server.redis_url.replace("//", f"//:{TOKEN}@")):
        tickets = client(url, token=None if "@" in url else TOKEN, prefetch=0)
        assert len({tickets.take("photos") for _ in range(2)}) == 2
        assert "s3cret" not in repr(tickets)
    assert server.requests[0].count(f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode()) == 1
    assert [asked.split()[0] for asked in server.asked[2:]] == ["AUTH", "INCR", "INCR"] * 2
    with pytest.raises(NotAllowed) as caught:
        client(server.redis_url, token="a-guess", prefetch=0).take("photos")
    assert "a-guess" not in str(caught.value)


@pytest.mark.usefixtures("asks_once")
@pytest.mark.parametrize(
    "said",
    [
        problem(503, f"you sent {TOKEN}", "Retry-After: 50"),
        problem(503, "x" * 280 + TOKEN, "Retry-After: 50"),
        problem(404, f"no such sequence {TOKEN}"),
        Honest(changes={"sequence": TOKEN}),
        Honest(changes={"id": TOKEN, "id_str": TOKEN}),
        Honest(changes={"id": "x" * 45 + TOKEN}),
        *(f"-{word} you sent {TOKEN}\r\n".encode() for word in ("ERR", "TRYAGAIN", "NOAUTH", "EXHAUSTED", "LOADING")),
    ],
)
def test_a_token_that_an_answer_repeats_is_nowhere(
    serve: Serve, client: Client, caplog: pytest.LogCaptureFixture, said: Answer | bytes
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(said if callable(said) else lambda asked: b"+OK\r\n" if asked.startswith("AUTH") else said)
    url = server.over("redis" if isinstance(said, bytes) and said.startswith(b"-") else "http")
    with pytest.raises(TicketError) as caught:
        client(url, token=TOKEN, prefetch=0).take("photos")
    text = str(caught.value)
    assert url in text
    assert not [part for part in ("s3cret", "0123456789") if part in text + repr(caught.value) + caplog.text]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), text)


@pytest.mark.usefixtures("asks_once")
def test_a_certificate_is_verified(
    serve: Serve, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make = Path(__file__).parents[2] / "deploy/tls/make_certificates.py"
    names = "good,127.0.0.1", "other,127.0.0.2"
    subprocess.run([sys.executable, make, tmp_path, *names], check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE)
    contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in names]
    for each, name in zip(contexts, ("good", "other")):
        each.load_cert_chain(tmp_path / name / "bundle.pem")
    good, other = (serve(Honest(), each) for each in contexts)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca/ca.pem"))
    tickets = client(good.url, tls=trusting, prefetch=0)
    assert [tickets.take("photos"), tickets.take("photos")] == [1, 3]
    assert len(good.sockets) == 1
    for url, tls in ((good.url, None), (other.url, trusting)):
        with pytest.raises(TicketsUnavailable, match=f"{url}: no answer"):
            client(url, tls=tls, prefetch=0).take("photos")
        assert f"{url}: no answer (its certificate: " in caplog.text
    assert not other.asked


# --- ensure

MADE = {"sequence": "photos", "bits": 64, "ceiling": 2**63 - 1, "ceiling_str": str(2**63 - 1)}


def test_ensure_sends_its_parameters_and_returns_the_answer(serve: Serve, either: Client) -> None:
    parameters = {"kind": "instagram", "epoch": 1_314_220_021_721, "start": 2**53 + 1}
    for status, name in ((200, "photos"), (201, "Photos")):
        server = serve(lambda _, status=status: http(MADE, status))
        assert either(server.url, token=TOKEN).ensure(name, **parameters) == MADE
        assert server.asked == [f"PUT /sequence/{name}"]
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert json.loads(body) == parameters
        assert b"Authorization: Bearer " in head


@pytest.mark.usefixtures("asks_once")
def test_ensure_asks_another_url(serve: Serve, client: Client, nobody: str) -> None:
    lies = [http(lie) for lie in ({}, {"sequence": "others"}, {"sequence": 7}, [1])]
    bad = [serve(lambda _, said=said: said) for said in (problem(503, "growing"), *lies)]
    urls = [f"http://{nobody}", *(each.url for each in bad)]
    over_redis = serve(Honest())
    assert client(over_redis.redis_url, *urls, serve(lambda _: http(MADE)).url).ensure("photos") == MADE
    with pytest.raises(TicketsUnavailable) as caught:
        client(over_redis.redis_url, *urls).ensure("photos")
    assert [url for url in urls if f"{url}: " not in str(caught.value)] == []
    with pytest.raises(TicketsUnavailable, match="http://"):
        client(over_redis.redis_url).ensure("photos")
    for wrong in ({1}, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest):
            client(over_redis.url).ensure("photos", bits=wrong)
    assert not over_redis.asked
