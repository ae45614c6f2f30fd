"""The log: one line for each event, on standard error. Who logs never waits for who reads it."""

import json
import logging
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TextIO

MOST_WAITING = 10_000
"""Lines that wait for somebody to read the log; further ones are dropped and counted."""
AT_END = 1.0
"""Seconds that the end of the process waits for the last lines to be written."""


class Lines(logging.Formatter):
    """Makes one line of each event, with its own fields, and with a traceback as the last of them.

    is_json: as an object with time, level, logger and message; else as `2026-01-01T12:00:00Z INFO message key=value …`.
    """

    def __init__(self, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one event."""
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        began = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        if self._is_json:
            entry = {"time": f"{began}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
            return json.dumps(entry | {"logger": record.name, "message": message} | fields, default=str)
        shown = message if message.isprintable() else repr(message)
        return " ".join([f"{began}Z {record.levelname} {shown}", *(f"{key}={_quoted(fields[key])}" for key in fields)])


class Writer(logging.Handler):
    """Writes lines in a thread of its own: a reader that stands still would hold the whole server up.

    stream: where to. most: how many lines wait at most; a line says how many were dropped, once somebody reads again.
    """

    def __init__(self, stream: TextIO, most: int = MOST_WAITING) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(most)
        self._dropped = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until the lines are written, but not for longer than AT_END."""
        until = time.monotonic() + AT_END
        while self._lines.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            lines = [self._lines.get()]
            if dropped := self._dropped:
                self._dropped = 0
                words = f"{dropped} lines were dropped, because nobody read the log"
                lines.append(self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, words, None, None)))
            with suppress(OSError, ValueError):  # nobody is left to tell
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            self._lines.task_done()


def set_up(level: str, form: str) -> None:
    """Send every event of this level and above to standard error.

    level: debug, info, warning or error. form: text or json. An event may have fields of its own: log it with
    `extra={"fields": {…}}`.
    """
    handler = Writer(sys.stderr)
    handler.setFormatter(Lines(is_json=form == "json"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(capture=True)
    for noisy in ("asyncio", "uvicorn"):  # they tell at `info` what this server says in its own words
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or not text.isprintable() or any(sign in text for sign in " \"'=") else text
