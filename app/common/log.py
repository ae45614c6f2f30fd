"""Logging: one line an event, on stderr."""

import json
import logging
import sys
import time


def event(
    logger: logging.Logger, level: int, message: str, exc_info: BaseException | None = None, **fields: object
) -> None:
    """Log one event: a few words, and fields that name its subject."""
    logger.log(level, message, exc_info=exc_info, extra={"fields": fields})


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}


class TextFormatter(logging.Formatter):
    """`2026-01-01T12:00:00Z INFO message key=value …`"""

    def __init__(self) -> None:
        self.converter = time.gmtime
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return " ".join([super().formatMessage(record), *(f"{k}={_shown(v)}" for k, v in _fields(record).items())])


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if not text or not text.isprintable() or any(c in " \"'=" for c in text) else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value if isinstance(value, int | float) else str(value) for key, value in _fields(record).items()},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up(level: str, style: str) -> None:
    """Send everything at or above `level` to stderr, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
