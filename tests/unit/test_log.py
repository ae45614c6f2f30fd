"""The log: one line for each event, whatever the event holds."""

import json
import logging
import os
from collections.abc import Iterator

import pytest

from app.log import Writer, set_up


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    """Put back the log of pytest."""
    loggers = map(logging.getLogger, ("root", "uvicorn", "asyncio"))
    before = [(each, each.level, each.handlers[:]) for each in loggers]
    yield
    logging.captureWarnings(capture=False)
    for each, level, handlers in before:
        each.setLevel(level)
        each.handlers[:] = handlers


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Log some events, and return the lines of the log."""
    log = logging.getLogger("app.a")
    log.info("drew %d tickets", 3, extra={"fields": {"path": "/a b", "empty": "", "ms": 0.5}})
    log.debug("not wanted")
    logging.getLogger("uvicorn.error").info("this server says it itself")
    logging.getLogger("uvicorn.error").error("went wrong")
    log.warning("é\nINFO of the client")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("failed")
    for handler in logging.getLogger().handlers:
        handler.flush()
    return capsys.readouterr().err.splitlines()


def test_each_event_is_one_line_of_text_or_one_object_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    first, foreign, second, failed = written(capsys)
    assert first.endswith("Z INFO drew 3 tickets path='/a b' empty='' ms=0.5")
    assert foreign.endswith("Z ERROR went wrong")
    assert second.endswith(r"Z WARNING 'é\nINFO of the client'")
    assert "Z ERROR failed traceback='Traceback (most recent call last):\\n" in failed
    assert failed.endswith(r"ValueError: first\nsecond'")
    set_up("info", "json")
    told, _, second, failed = map(json.loads, written(capsys))
    assert told.pop("time").endswith("Z")
    fields = {"path": "/a b", "empty": "", "ms": 0.5}
    assert told == {"level": "info", "logger": "app.a", "message": "drew 3 tickets"} | fields
    assert (second["level"], second["message"]) == ("warning", "é\nINFO of the client")
    assert failed["traceback"].endswith("ValueError: first\nsecond")


def test_a_reader_that_stands_still_holds_nobody_up_and_lines_are_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        handler = Writer(writer, most=10)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.Logger("test")
        logger.addHandler(handler)
        for number in range(2_000):
            logger.warning("%05d %s", number, "x" * 1_000)  # far more than a pipe and the queue hold
        numbers, dropped = list[int](), 0
        while len(numbers) + dropped < 2_000:
            first, _, text = reader.readline().partition(b" ")
            if b"dropped" in text:
                dropped += int(first)
            else:
                numbers.append(int(first))
        assert numbers == sorted(numbers)
        assert dropped > 0
