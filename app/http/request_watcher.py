"""Requests for tickets in the access log and in traces, where either is asked for."""

import logging
from typing import Any

from app.http.tickets.head import Place, RequestHead
from app.http.tickets.protocol import TicketProtocol
from app.http.uvicorn_adapter import access_logger
from app.operations.tracing import TracedTickets


class RequestWatcher:
    """See ticket_endpoint.Watcher."""

    def __init__(self, tracer: TracedTickets | None, *, log_access: bool) -> None:
        self._tracer = tracer
        self._log: logging.Logger | None = access_logger() if log_access else None

    def begin(self, protocol: TicketProtocol, head: RequestHead) -> object:
        """See Watcher.begin."""
        if self._tracer is None:
            return None
        place = head.place or Place(False)
        path = f"/{'block' if place.whole else 'ticket'}/{place.name}"
        return self._tracer.begin(head.method.decode(), path, head.fields)

    def end(self, protocol: TicketProtocol, head: RequestHead, trace: Any, status: int) -> None:
        """See Watcher.end."""
        if self._tracer is not None and trace is not None:
            self._tracer.end(trace, status)
        if self._log is not None and status:
            peer = protocol.transport.get_extra_info("peername")
            client = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
            target = head.target.decode("latin-1")
            self._log.info('%s - "%s %s HTTP/%s" %d', client, head.method.decode(), target, head.version, status)
