"""`make pictures`: pictures of the pages of a running server, taken in a real Chromium, for README.md and docs/.

The server runs on its embedded pair, with sequences of several kinds, under a load that rises and falls. Beside the
pictures a small JSON file records which release they show; a test compares it with the program's version.

The dashboard of Grafana (deploy/grafana/) is not among them, because neither Debian nor PyPI nor npm has Grafana.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docs.generator.blocks import write
from tests.harness.browser import Browser, NoBrowser
from tests.harness.load import Load, Want
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
RECORD = "pictures.json"
"""The file, beside the pictures, that says of which release they are."""

SEQUENCES: Mapping[str, Mapping[str, Any]] = {
    "comments": {},
    "invoices": {"bits": 32, "start": 1000},
    "likes": {"kind": "instagram", "shards": 2000},
    "messages": {"kind": "snowflake"},
    "sessions": {"kind": "uuid7"},
}
"""The sequences that are made beside those of the embedded pair, with what PUT is given."""
MIX = (
    Want("photos", weight=8),
    Want("photos", "count", 10),
    Want("accounts", weight=4),
    Want("comments", weight=3),
    Want("invoices", weight=1),
    Want("likes", weight=4),
    Want("messages", weight=4),
)
PHASES = ((0.3, 3), (0.15, 10), (0.3, 5), (0.25, 7))
"""The load: shares of the time, and the clients during each. The pictures are taken while the last of them goes on."""
PAUSE = 0.05
"""Seconds that each client waits between two requests."""
WIDE, NARROW = (1200, 900), (390, 844)


def main(arguments: Sequence[str] | None = None) -> int:
    """Take all pictures. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.generator.pictures", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="of load before the pictures (default 90)")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER", help="where they go (docs/pictures)")
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    try:
        with TicketServer(settings=PATIENT) as server, Browser() as browser, _load(server, options.seconds):
            taken = _taken(server, browser, options.into)
            release = server.get("/healthz").json()["version"]
            chromium = browser.command("Browser.getVersion")["product"]
    except NoBrowser as error:
        print(error, file=sys.stderr)
        return 1
    for old in set(options.into.glob("*.png")) - {options.into / name for name in taken}:
        old.unlink()
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    record = {"version": release, "date": date, "browser": chromium, "pictures": taken}
    write(options.into / RECORD, json.dumps(record, indent=1) + "\n")
    print(f"taken of release {release}: {', '.join(taken)}")
    return 0


@contextmanager
def _load(server: TicketServer, seconds: float) -> Iterator[None]:
    """Sequences, and the load's phases; the last one goes on inside the `with`."""
    server.wait_ready()
    for name, parameters in SEQUENCES.items():
        reply = server.put(f"/sequence/{name}", json=parameters)
        if reply.status != 201:
            raise RuntimeError(f"{name} was not made: {reply.text}")
    *first, (share, clients) = PHASES
    for part, some in first:
        with Load([server.address], clients=some, mix=MIX, pause=PAUSE) as load:
            load.run_for(part * seconds)
    with Load([server.address], clients=clients, mix=MIX, pause=PAUSE) as load:
        load.run_for(share * seconds)
        yield
    if failures := load.result.failures():
        raise RuntimeError(f"{len(failures)} requests failed while the pictures were taken: {failures[0]}")


def _taken(server: TicketServer, browser: Browser, folder: Path) -> list[str]:
    """Open each page and save its picture. Returns the names of the files."""
    taken = []

    def take(name: str, url: str, size: tuple[int, int], *, dark: bool = False, whole: bool = False) -> None:
        browser.look(*size, dark=dark)
        browser.open(url)
        wait_until(lambda: browser.text("h1"), 30, f"{url} to have a heading")
        browser.picture(folder / name, whole=whole)
        taken.append(name)

    status = f"{server.url}/"
    take("status-light.png", status, WIDE)
    take("status-dark.png", status, WIDE, dark=True)
    take("status-narrow.png", status, NARROW)
    browser.look(*WIDE)
    browser.open(status)
    link = str(browser.value("document.querySelector('[data-sequence=\"photos\"] a[href]')?.href ?? ''"))
    if link.startswith(status):
        take("sequence.png", link, WIDE, whole=True)
    take("api.png", f"{server.url}/docs", WIDE)
    if browser.complaints:
        raise RuntimeError(f"the pages complain: {browser.complaints}")
    return taken


if __name__ == "__main__":
    sys.exit(main())
