"""The client of the ticket server: unique ids, most of them from memory.

    from ticketd_client import Tickets

    with Tickets(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]) as tickets:
        tickets.take("photos")            # an int
        tickets.take_many("photos", 500)  # a list of ints

`AsyncTickets` has the same with `await`. How it is built, from the top:

    tickets     the two clients
    engine      what they share, and what a fork does to it
    supply      one sequence: its tickets in memory, fetched before anybody waits for them
    given       what it has been given; nothing is taken twice
    failover    which URL is asked, and which next
    servers     one server; over_http and over_redis speak to it, `answers` reads what it says with suspicion
    connections the connections to one server; `names` finds its addresses
    urls        which servers the URLs name
    workers     the threads in the background
    forks       which process this is
    clock       how old a ticket is
    errors      what is raised
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
