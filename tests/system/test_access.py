"""The access rules: the contract's matrix of tokens, on a running server; and that no token is ever shown."""

import base64
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, Reply, TicketServer

pytestmark = pytest.mark.any_engine

USER, OTHER, ADMIN, OLDER = "user-token-3141", "ünï-tökén-票", "admin-token-2718", "older-token-1618"
READS = ["/ticket/photos", "/block/photos?size=2", "/sequence", "/sequence/photos", "/metrics", "/", "/docs",
         "/openapi.json", "/no-such-page"]  # fmt: skip
OPEN = ["/livez", "/readyz", "/healthz"]
CHANGES = [("PUT", "/sequence/photos", {}), ("POST", "/sequence/photos/bump", {"above": 0})]


class Setting(NamedTuple):
    """What is set, and what each token then gets: for reading, for changes."""

    tokens: str
    admin_tokens: str
    nobody: tuple[int, int]
    user: tuple[int, int]
    admin: tuple[int, int]


SETTINGS = {
    "none": Setting("", "", (200, 200), (200, 200), (200, 200)),
    "tokens": Setting(f"{USER} {OTHER}", "", (401, 401), (200, 200), (401, 401)),
    "admin": Setting("", ADMIN, (200, 401), (200, 401), (200, 200)),
    "both": Setting(f"{OTHER}  {USER}", f"{OLDER} {ADMIN}", (401, 401), (200, 403), (200, 200)),
}


@pytest.fixture(scope="module", params=SETTINGS)
def setting(request: pytest.FixtureRequest) -> Setting:
    return SETTINGS[request.param]


@pytest.fixture(scope="module")
def server(setting: Setting) -> Iterator[TicketServer]:
    given = {"TICKETS_TOKENS": setting.tokens, "TICKETS_ADMIN_TOKENS": setting.admin_tokens}
    with TicketServer(settings={**PATIENT, **{name: value for name, value in given.items() if value}}) as server:
        server.wait_ready()
        yield server


def bearer(token: str, scheme: str = "Bearer") -> dict[str, bytes]:
    return {"Authorization": f"{scheme} {token}".encode()}


def basic(token: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"operator:{token}".encode()).decode()}


def check(reply: Reply, expected: int) -> None:
    assert (reply.status if reply.status != 404 else 200) == expected, reply.text
    if expected >= 400:
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["status"] == expected
    if expected == 401:
        assert reply.headers["www-authenticate"].startswith('Bearer realm="tickets"')
    else:
        assert "www-authenticate" not in reply.headers


def test_who_may_read_and_who_may_change(server: TicketServer, setting: Setting) -> None:
    known: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({}, setting.nobody),
        (bearer("wrong"), setting.nobody),
        (bearer(USER), setting.user),
    ]
    known += [
        (bearer(ADMIN), setting.admin),
        (bearer(USER, "bEaReR"), setting.user),
        ({"Authorization": "Bearer"}, setting.nobody),
    ]
    if OTHER in setting.tokens:
        known.append((bearer(OTHER), setting.user))
    if OLDER in setting.admin_tokens:
        known.append((bearer(OLDER), setting.admin))
    for headers, (reading, changing) in known:
        for path in READS:
            check(server.get(path, headers=headers), reading)
        for path in OPEN:
            check(server.get(path, headers=headers), 200)
        for method, path, body in CHANGES:
            check(server.request(method, path, json=body, headers=headers), changing)


@pytest.mark.parametrize(
    "value",
    [b"", b"Bearer", USER.encode(), b"Token " + USER.encode(), b"Bearer " + USER.encode()[:-1],
     b"Bearer " + USER.encode() + b"x", b"Bearer " + USER.upper().encode(),
     b"Bearer \xff\xfe", b"Bearer " + b"x" * 8000, b"Bearer " + USER.encode() + b" " + ADMIN.encode(),
     b"Basic", b"Basic !!!", b"Basic " + base64.b64encode(USER.encode()), b"Basic " + base64.b64encode(b"a:wrong")],
    ids=lambda value: repr(value[:24]),
)  # fmt: skip
def test_what_is_no_token_is_none(server: TicketServer, setting: Setting, value: bytes) -> None:
    for path in ("/ticket/photos", "/sequence"):
        check(server.get(path, headers={"Authorization": value}), setting.nobody[0])
    check(server.put("/sequence/photos", headers={"Authorization": value}), setting.nobody[1])


def test_a_browser_is_asked_for_a_token_on_pages_and_may_only_read(server: TicketServer, setting: Setting) -> None:
    reading, changing = setting.nobody
    for path in ("/", "/docs"):
        asked = server.get(path).headers.get("www-authenticate", "")
        assert ("Basic" in asked) is (reading == 401)
    assert "Basic" not in server.get("/sequence").headers.get("www-authenticate", "")
    assert server.get("/", headers=basic(USER)).status == 200
    check(server.put("/sequence/photos", headers=basic(USER)), changing)
    check(server.get("/ticket/photos", headers=basic(USER)), reading)


def test_the_description_says_where_a_token_is_wanted(server: TicketServer, setting: Setting) -> None:
    document = server.get("/openapi.json", headers=bearer(USER)).json()
    expected = {
        (method, path): "security" in operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert expected["get", "/ticket/{sequence}"] is (setting.nobody[0] == 401)
    assert expected["put", "/sequence/{sequence}"] is (setting.nobody[1] == 401)
    assert not any(expected["get", path] for path in OPEN)
    assert ("securitySchemes" in document["components"]) is (setting.nobody[1] == 401)


def test_no_token_is_shown_anywhere(server: TicketServer, setting: Setting) -> None:
    """The last test here: it reads everything that the others have left."""
    given = setting.tokens.split() + setting.admin_tokens.split()
    said = [server.log_text(), server.output_text()]
    for headers in (bearer(USER), bearer(ADMIN)):
        said += [server.get(path, headers=headers).text for path in READS + OPEN]
        said.append(server.put("/sequence/photos", headers=headers).text)
    for token in given:
        assert not [text for text in said if token in text]
        assert token.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()


def test_every_change_is_audited_under_a_short_name_of_its_token_and_what_is_denied_is_counted() -> None:
    settings = {**PATIENT, "TICKETS_TOKENS": USER, "TICKETS_ADMIN_TOKENS": ADMIN, "TICKETS_LOG_FORMAT": "json"}
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        forwarded = {"X-Forwarded-For": "203.0.113.9, 10.0.0.1"}
        server.put("/sequence/audited", json={"bits": 32, "start": 5}, headers=bearer(ADMIN) | forwarded)
        server.put("/sequence/audited", headers=bearer(USER))
        server.put("/sequence/audited", json={"bits": 64}, headers=bearer(ADMIN))
        server.post("/sequence/audited/bump", json={"above": 77}, headers=bearer(ADMIN))
        server.post("/sequence/%1B[31m%0Aevil/bump", json={"above": 77})
        server.get("/ticket/audited", headers=bearer(USER))
        server.get("/sequence", headers=bearer(ADMIN))
        denials = [
            line for line in server.get("/metrics", headers=bearer(USER)).text.splitlines() if "_denied_" in line
        ]
        server.terminate()
        lines = [json.loads(line) for line in server.log_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    audited = [line for line in lines if line["message"] == "audit"]
    admin, user = (hashlib.sha256(token.encode()).hexdigest()[:8] for token in (ADMIN, USER))
    seen = [(each["method"], each["path"], each["status"], each["token"], each["client"]) for each in audited]
    path = "/sequence/audited"
    assert seen == [
        ("PUT", path, 201, admin, "127.0.0.1"),
        ("PUT", path, 409, admin, "127.0.0.1"),
        ("POST", f"{path}/bump", 200, admin, "127.0.0.1"),
    ]
    assert [each.get("claimed_client") for each in audited] == ["203.0.113.9, 10.0.0.1", None, None]
    denied = [line for line in lines if line["message"] == "denied"]
    assert [(each["changes"], each["last_client"], each["last_token"]) for each in denied] == [(1, "127.0.0.1", user)]
    assert 'tickets_denied_total{what="changes"} 2.0' in denials
    assert (audited[0]["bits"], audited[0]["start"], audited[2]["above"]) == (32, 5, 77)


def test_a_log_for_people_cannot_be_forged() -> None:
    with TicketServer(settings=PATIENT) as server:
        server.put("/sequence/%0A2026-01-01T00:00:00Z%20INFO%20audit%1B[2J")
        audit = [line for line in server.log_text().splitlines() if "audit" in line]
    assert len(audit) == 1
    assert "\x1b" not in audit[0]
    assert "status=422" in audit[0]


def test_tokens_change_without_a_restart(tmp_path: Path) -> None:
    """When their file does, or on SIGHUP; a file that cannot be used changes nothing."""
    path = tmp_path / "tokens"
    path.write_text(f"{USER}\n", encoding="utf-8")
    with TicketServer(settings={**PATIENT, "TICKETS_TOKENS_FILE": path}) as server:
        server.wait_ready()

        def status(token: str) -> int:
            return server.get("/ticket/photos", headers=bearer(token)).status

        assert (status(USER), status(ADMIN)) == (200, 401)
        path.write_text(f"{USER} {ADMIN}\n", encoding="utf-8")
        wait_until(lambda: status(ADMIN) == 200, 20, "the new token to be known")
        assert status(USER) == 200
        path.write_text(f"{ADMIN}\n", encoding="utf-8")
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: status(USER) == 401, 20, "the old token to be forgotten")
        path.unlink()
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: "the tokens stay as they were" in server.log_text(), 20, "it to be said")
        assert (status(USER), status(ADMIN)) == (401, 200)
        assert USER not in server.log_text()
        assert ADMIN not in server.log_text()


def test_tokens_that_change_while_the_server_starts_are_known(tmp_path: Path) -> None:
    """They have been read, and nobody watches yet: it waits for another setting, which comes from a pipe."""
    tokens, level = tmp_path / "tokens", tmp_path / "log-level"
    tokens.write_text(f"{USER}\n", encoding="utf-8")
    os.mkfifo(level)
    settings = {**PATIENT, "TICKETS_TOKENS_FILE": tokens, "TICKETS_LOG_LEVEL_FILE": level}
    with closing(TicketServer(settings=settings)) as server:
        server.start()
        with level.open("w", encoding="utf-8") as pipe:  # once the server reads it
            level.unlink()
            level.write_text("info\n", encoding="utf-8")
            tokens.write_text(f"{ADMIN}\n", encoding="utf-8")
            os.kill(server.pid, signal.SIGHUP)
            pipe.write("info\n")
        server.wait_ready()
        wait_until(
            lambda: [server.get("/ticket/photos", headers=bearer(each)).status for each in (USER, ADMIN)] == [401, 200],
            20,
            "the old token to be forgotten",
        )


def test_a_token_from_a_file_may_end_in_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{USER}\n{OTHER}\n", encoding="utf-8")
    with TicketServer(settings={**PATIENT, "TICKETS_TOKENS_FILE": path}) as server:
        server.wait_ready()
        assert [server.get("/ticket/photos", headers=bearer(each)).status for each in (USER, OTHER)] == [200, 200]
        assert server.get("/ticket/photos").status == 401
