"""Commands for tickets in the access log and in traces, where either is asked for."""

import logging
from typing import Any

from app.operations.tracing import TracedTickets
from app.redis.requests import Place

access_log = logging.getLogger("app.redis.access")


class CommandWatcher:
    """See requests.Watcher."""

    def __init__(self, tracer: TracedTickets | None, *, log_access: bool) -> None:
        self._tracer = tracer
        self._log: logging.Logger | None = access_log if log_access else None

    def begin(self, words: str, count: int) -> object:
        """See Watcher.begin."""
        return None if self._tracer is None else self._tracer.begin_commands(words, count)

    def end(self, place: Place, words: str, count: int, trace: Any, outcome: str) -> None:
        """See Watcher.end."""
        if self._tracer is not None and trace is not None:
            self._tracer.end_commands(trace, outcome)
        if self._log is not None and outcome:
            self._log.info('%s - "%s" %s%s', place.client, words, outcome, f" x{count}" if count > 1 else "")
