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
    loggers = [logging.getLogger(), logging.getLogger("uvicorn"), logging.getLogger("asyncio")]
    before = [(each, each.level, each.handlers[:]) for each in loggers]
    yield
    logging.captureWarnings(capture=False)
    for each, level, handlers in before:
        each.setLevel(level)
        each.handlers[:] = handlers


def written(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the log has written by now."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return capsys.readouterr().err


def test_text_is_one_line_for_each_event_with_fields_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    log = logging.getLogger("app.a")
    log.info("drew %d tickets", 3, extra={"fields": {"sequence": "photos", "path": "/a b", "empty": ""}})
    log.debug("not wanted")
    log.warning("a name\nINFO of the client")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("failed")
    lines = written(capsys).splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("Z INFO drew 3 tickets sequence=photos path='/a b' empty=''")
    assert lines[1].endswith(r"Z WARNING 'a name\nINFO of the client'")
    assert "Z ERROR failed traceback='Traceback (most recent call last):\\n" in lines[2]
    assert lines[2].endswith(r"ValueError: first\nsecond'")


def test_json_is_one_object_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("warning", "json")
    log = logging.getLogger("app.b")
    log.info("not wanted")
    log.warning("é\n", extra={"fields": {"seconds": 0.5, "status": 200}})
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed")
    first, second = [json.loads(line) for line in written(capsys).splitlines()]
    assert first.pop("time").endswith("Z")
    assert first == {"level": "warning", "logger": "app.b", "message": "é\n", "seconds": 0.5, "status": 200}
    assert second["traceback"].endswith("ValueError: wrong")


def test_what_uvicorn_says_goes_through_it_unless_this_server_says_it_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up("info", "text")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("went wrong")
    (line,) = written(capsys).splitlines()
    assert line.endswith("ERROR went wrong")


def test_a_reader_that_stands_still_holds_nobody_up_and_lines_are_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        handler = Writer(writer, most=10)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.Logger("test")
        logger.addHandler(handler)
        count = 2_000
        for number in range(count):
            logger.warning("%05d %s", number, "x" * 1_000)  # far more than a pipe and the queue hold
        numbers: list[int] = []
        dropped = 0
        while len(numbers) + dropped < count:
            line = reader.readline()
            if b"dropped" in line:
                dropped += int(line.split()[0])
            else:
                numbers.append(int(line[:5]))
        assert numbers == sorted(numbers)
        assert dropped > 0
