"""Tokens, which are nowhere but where they belong; https:// URLs; and `ensure`, which takes an admin token."""

from __future__ import annotations

import datetime
import ipaddress
import json
import logging
import pickle
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lying_server import Answer, Client, Honest, Said, Serve, http, problem, until
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
        client(url, token=TOKEN, prefetch=0, timeout=1).take("photos")
    text = str(caught.value)
    assert url in text
    assert not [part for part in ("s3cret", "0123456789") if part in text + repr(caught.value) + caplog.text]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), text)


# --- https


def certificate(folder: Path, address: str) -> Path:
    """A file with a certificate for a server at this address, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / f"{address}.pem"
    file.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption()))
    return file


def test_a_certificate_is_verified(serve: Serve, client: Client, tmp_path: Path) -> None:
    right, wrong = (certificate(tmp_path, address) for address in ("127.0.0.1", "127.0.0.2"))
    trusting = ssl.create_default_context(cafile=str(right))
    trusting.load_verify_locations(cafile=str(wrong))
    servers = []
    for file in (right, wrong):
        speaks = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        speaks.load_cert_chain(file)
        servers.append(serve(Honest(), speaks))
    good, other = servers
    tickets = client(good.url, tls=trusting, prefetch=0)
    assert tickets.take("photos") == 1
    assert tickets.take("photos") == 3
    assert len(good.sockets) == 1
    for url, tls in ((good.url, None), (other.url, trusting)):
        with pytest.raises(TicketsUnavailable, match=f"{url}: no answer .*certificate"):
            client(url, tls=tls, prefetch=0, timeout=2).take("photos")
    assert not other.asked
    tickets.close()
    until(lambda: not good.sockets and not other.sockets)


# --- ensure

MADE = {"sequence": "photos", "bits": 64, "ceiling": 2**63 - 1, "ceiling_str": str(2**63 - 1)}


@pytest.mark.parametrize(("status", "name"), [(200, "photos"), (201, "photos"), (200, "Photos")])
def test_ensure_sends_its_parameters_and_returns_the_answer(
    serve: Serve, client: Client, status: int, name: str
) -> None:
    server = serve(lambda _: http(MADE, status))
    parameters = {"kind": "instagram", "epoch": 1_314_220_021_721, "start": 2**53 + 1}
    assert client(server.url, token=TOKEN).ensure(name, **parameters) == MADE
    assert server.asked == [f"PUT /sequence/{name}"]
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert json.loads(body) == parameters
    assert b"Authorization: Bearer " in head


def test_ensure_asks_another_url(serve: Serve, client: Client, nobody: str) -> None:
    lies = [http(lie) for lie in ({}, {"sequence": "others"}, {"sequence": 7}, [1])]
    bad = [serve(lambda _, said=said: said) for said in (problem(503, "growing"), *lies)]
    urls = [f"http://{nobody}", *(each.url for each in bad)]
    assert client(*urls, serve(lambda _: http(MADE)).url).ensure("photos") == MADE
    with pytest.raises(TicketsUnavailable) as caught:
        client(*urls, timeout=2).ensure("photos")
    assert [url for url in urls if f"{url}: " not in str(caught.value)] == []


def test_ensure_needs_http(serve: Serve, client: Client, nobody: str) -> None:
    server = serve(lambda asked: http(MADE) if "PUT" in asked else None)
    assert client(server.redis_url, server.url).ensure("photos") == MADE
    with pytest.raises(TicketError, match="http://"):
        client(server.redis_url).ensure("photos")
    with pytest.raises(TicketsUnavailable, match="refused"):
        client(server.redis_url, f"http://{nobody}", timeout=0.5).ensure("photos")
    assert server.asked == ["PUT /sequence/photos"]


def test_parameters_that_are_no_json_are_not_sent(client: Client) -> None:
    for wrong in ({1}, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest):
            client("http://127.0.0.1:9").ensure("photos", bits=wrong)
