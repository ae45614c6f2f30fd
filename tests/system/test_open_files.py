"""The hard limit on open files: what is too low stops the start, and from there on no connection is lost."""

import pytest

from tests.harness.load import Load, Want
from tests.harness.pair import Schema
from tests.harness.ticketd import PATIENT, TicketServer

LEAST, KEPT = 256, 192
"""As the README has them."""


@pytest.mark.any_engine
@pytest.mark.parametrize("files", [40, 193, LEAST - 1])
def test_a_hard_limit_that_is_too_low_stops_the_start_with_one_line(files: int) -> None:
    server = TicketServer(open_files=files, settings={"TICKETS_OF_A_LATER_RELEASE": 1})
    try:
        server.start()
        assert server.wait() == 1
        assert server.log_text() == (
            f"ticketd: the hard limit on open files is {files}, and a ticket server requires {LEAST} at least; "
            "raise it (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of Docker)\n"
        )
    finally:
        server.close()


@pytest.mark.parametrize("requests", [1, 1_000_000], ids=["a connection each", "on one connection"])
def test_with_the_lowest_limit_no_request_is_refused(fresh_schema: Schema, requests: int) -> None:
    clients = (LEAST - KEPT) // 2 if requests == 1 else LEAST - KEPT - 1  # one more asks how the server is
    with TicketServer(fresh_schema.urls, open_files=LEAST, settings=PATIENT) as server:
        server.wait_health()
        assert f"limit={LEAST} used={LEAST - KEPT}" in server.log_text()
        mix: list[Want | str] = [
            "photos",
            "accounts",
            "groups",
            "offline_tasks",
            "Tickets64",
            Want("Tickets32", "block", 10),
        ]
        with Load([server.address], clients=clients, mix=mix, hop=requests) as load:
            load.run_until_tickets(3_000, timeout=60)
        assert load.result.failures() == []
        load.result.check()
        assert server.get("/healthz").json()["status"] == "pass"
        assert "connections_refused_total 0" in server.get("/metrics").text
        assert "open files" not in server.log_text().split("used=")[1]
