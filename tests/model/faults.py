"""The faults of databases in the model, the ways to lose a table, and how long ticket servers stand still."""

from collections.abc import Callable

from tests.fakes.ticket_database import FakeServer

FAULTS: dict[str, Callable[[FakeServer], object]] = {
    "down": lambda server: setattr(server, "down", True),
    "hangs": FakeServer.hang,
    "read-only": lambda server: setattr(server, "read_only", True),
    "ledger fails": lambda server: setattr(server, "ledger_fails", True),
    "misconfigured": lambda server: setattr(server, "misconfigured", "has another offset"),
    "wrong residue": lambda server: setattr(
        server, "draws_as", (server.offset % server.increment + 1, server.increment)
    ),
    "increment 1": lambda server: setattr(server, "draws_as", (1, 1)),
    "deadlocks": lambda server: setattr(server, "deadlocks", 4),
    "loses replies": lambda server: setattr(server, "loses_replies", 2),
    "photos locked": lambda server: server.lock("photos"),
    "accounts locked": lambda server: server.lock("accounts"),
    "restarted": FakeServer.restart,
}
LOSSES = ("truncate", "drop", "remake")
STALLS = ((0.005, 0.02), (0.05, 0.3), (0.36, 0.48), (0.36, 0.48), (0.5, 0.7), (1.0, 2.5), (10.0, 10.0))
"""How long a ticket server stands still: also longer than a lane is patient, and less long than an attempt takes."""
