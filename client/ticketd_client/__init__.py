"""The client of the ticket server: unique ids, most of them from memory.

    from ticketd_client import Tickets

    with Tickets(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]) as tickets:
        tickets.take("photos")            # an int
        tickets.take_many("photos", 500)  # a list of ints

`AsyncTickets` has the same with `await`. From the top: `tickets`, the two clients; `supply`, one sequence's tickets in
memory; `failover`, which URL is asked; `servers`, one URL, over HTTP or Redis; `forks`, which process this is.
"""

import logging

from ticketd_client.errors import (
    Answer,
    InvalidRequest,
    NoSuchSequence,
    NotAllowed,
    SequenceConflict,
    SequenceExhausted,
    TicketError,
    TicketsUnavailable,
)
from ticketd_client.tickets import AsyncTickets, Tickets

__all__ = [
    "Answer",
    "AsyncTickets",
    "InvalidRequest",
    "NoSuchSequence",
    "NotAllowed",
    "SequenceConflict",
    "SequenceExhausted",
    "TicketError",
    "Tickets",
    "TicketsUnavailable",
]

logging.getLogger("ticketd_client").addHandler(logging.NullHandler())  # a program without a log is told nothing
__version__ = "0.1.0"
