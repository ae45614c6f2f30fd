"""The certificates of the deployments, and HAProxy's TLS front with them."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.front import HAProxy, trusting
from tests.documents.pages import REPOSITORY
from tests.harness.ticketd import TicketServer

TOOL = REPOSITORY / "deploy/tls/make_certificates.py"


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    with TicketServer() as started:
        started.wait_ready()
        yield started


def test_the_front_speaks_tls_with_a_certificate_that_clients_can_verify(
    server: TicketServer, certificates: Path
) -> None:
    with HAProxy([server.name] * 3, certificate=certificates / "front/bundle.pem") as haproxy:
        haproxy.wait_states("UP", "UP", "UP")
        for host in ("localhost", "127.0.0.1"):
            url = f"https://{host}:{haproxy.tls_port}/ticket/photos"
            answer = httpx.get(url, verify=trusting(certificates), trust_env=False, timeout=20)
            assert answer.status_code == 200
            assert "strict-transport-security" not in answer.headers
        assert haproxy.get("/ticket/photos").status_code == 200


def test_where_tls_is_asked_for_the_port_without_it_serves_health_checks_alone(
    server: TicketServer, certificates: Path
) -> None:
    bundle = certificates / "front/bundle.pem"
    with HAProxy([server.name] * 3, certificate=bundle, plain="redirect") as haproxy:
        haproxy.wait_states("UP", "UP", "UP")
        answer = haproxy.get("/ticket/photos?count=2")
        assert answer.status_code == 308
        assert answer.headers["location"] == f"https://127.0.0.1:{haproxy.tls_port}/ticket/photos?count=2"
        followed = httpx.post(
            f"http://localhost:{haproxy.port}/ticket/photos?count=2",
            verify=trusting(certificates), trust_env=False, timeout=20, follow_redirects=True,
        )  # fmt: skip
        assert followed.status_code == 200
        assert followed.json()["count"] == 2
        assert "strict-transport-security" in followed.headers
        for path in ("/livez", "/readyz", "/healthz"):
            assert haproxy.get(path).status_code == 200


def test_certificates_that_are_there_are_kept(certificates: Path) -> None:
    before = {path: path.read_bytes() for path in certificates.rglob("*.pem")}
    subprocess.run([sys.executable, str(TOOL), str(certificates), "front", "other"], check=True, timeout=60)
    assert {path: path.read_bytes() for path in certificates.rglob("*.pem")} == before
    assert len(before) == 7


def test_a_key_is_its_readers_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(TOOL), str(tmp_path), f"front:{os.getuid()}"], check=True, timeout=60)
    for name in ("key.pem", "bundle.pem"):
        status = (tmp_path / "front" / name).stat()
        assert (status.st_mode & 0o777, status.st_uid) == (0o440, os.getuid())
    assert not list((tmp_path / "ca").glob("*key*"))


def test_what_was_begun_and_not_finished_is_made_anew(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "front").mkdir()
    (tmp_path / "front/key.pem").write_bytes((certificates / "front/key.pem").read_bytes())
    (tmp_path / "front/key.pem").chmod(0o440)
    subprocess.run([sys.executable, str(TOOL), str(tmp_path), "front"], check=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "front/cert.pem", tmp_path / "front/key.pem")
