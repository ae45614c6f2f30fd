"""Servers of releases 0.1.0 and 0.2.0 beside this one, from the repository's history.

`python -m tests.long.older_releases` makes an environment for each of them, which takes a minute.

In every mixture a server of each release answers bumps while the server of this release has a reserve, and has seen
the others. No ticket at or below a bump may come after its answer. Until its first probe after an older server has
started, at most a probe interval later, this release cannot know of that server: the older one waits for nobody.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness.engine import find_engine
from tests.harness.load import Load
from tests.harness.pair import MySQLPair
from tests.harness.processes import ChildProcess, wait_until
from tests.harness.ticketd import REPOSITORY, TicketServer

BEFORE = {"0.1.0": "49a24a9^", "0.2.0": "e414863^"}
"""The last commit of each release: the one before the next version."""
MIXTURES = (("0.1.0",), ("0.2.0",), ("0.1.0", "0.2.0"))
SEEN_AS = {"0.1.0": "of an older release", "0.2.0": "of release 0.2.0"}
"""How /healthz names a server of each."""
RESERVE_SECONDS = 2.0
BUMPS = 3
LOAD_SECONDS = 1.5
ABOVE = 1_000_000


class OlderServer(TicketServer):
    """A ticket server of another checkout."""

    def __init__(self, checkout: Path, databases: str) -> None:
        super().__init__(databases)
        self._checkout = checkout
        self.environment["PYTHONPATH"] = f"{checkout}:{checkout / 'client'}"

    def start(self) -> None:
        """See TicketServer.start."""
        self._process = ChildProcess(
            [str(self._checkout / "venv/bin/python"), "-m", "app", "serve"],
            stdout=self.output,
            stderr=self.log,
            cwd=self._checkout,
            env=self.environment,
        )


@contextmanager
def checkouts() -> Iterator[dict[str, Path]]:
    """The program as it was in each release, with what it needs. Raises CalledProcessError where the history is not
    there."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for release, commit in BEFORE.items():
            made = Path(folder) / release
            archived = ["git", "archive", commit]
            packed = subprocess.run(archived, cwd=REPOSITORY, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(made, filter="data")
            subprocess.run([sys.executable, "-m", "venv", made / "venv"], check=True)
            install = [
                str(made / "venv/bin/pip"),
                "install",
                "--quiet",
                "--requirement",
                str(made / "requirements.txt"),
            ]
            subprocess.run(install, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)
            found[release] = made
        yield found


def too_small(pair: MySQLPair, older: list[Path], seen_as: list[str], schema: str) -> list[str]:
    """What came at or below an answered bump, in words."""
    urls = pair.make_schema(schema).urls
    found = []
    with ExitStack() as stack:
        this = stack.enter_context(TicketServer(urls, settings={"TICKETS_RESERVE_SECONDS": RESERVE_SECONDS}))
        this.wait_health("pass")
        load = stack.enter_context(Load([this.address], clients=4, pause=0.002))
        load.run_for(3)
        above = 0
        servers: list[TicketServer] = []
        for checkout in older:
            other = OlderServer(checkout, urls)
            stack.callback(other.close)
            other.start()
            other.wait_alive()
            servers.append(other)
        this.wait_health("warn")
        wait_until(lambda: all(release in this.get("/healthz").text for release in seen_as), 10, "all to be seen")
        servers.append(this)
        for number in range(BUMPS):
            for server in servers:
                above += ABOVE
                deadline = time.monotonic() + 20
                while (reply := server.post("/sequence/photos/bump", json={"above": above})).status != 200:
                    assert time.monotonic() < deadline, (server, reply.text)
                    time.sleep(0.02)
                answered = time.monotonic()
                load.run_for(LOAD_SECONDS)
                after = [each for each in load.result.answers if each.asked_at > answered and each.status == 200]
                low = [each for each in after if min(each.ids) <= above]
                if low or not after:
                    found.append(f"bump {number} of {server.name}: {len(low)} of {len(after)} at or below {above}")
        load.stop()
        load.result.check()
    return found


def main() -> int:
    """Print what came of each mixture; 0 where every promise was kept, or the history is not there."""
    engine = find_engine()
    print(f"on {engine.kind} {engine.version}", flush=True)
    violations = 0
    with ExitStack() as stack:
        try:
            found = stack.enter_context(checkouts())
        except (OSError, subprocess.CalledProcessError):
            print("left out: this copy of the repository has no history")
            return os.EX_OK
        pair = stack.enter_context(MySQLPair(engine))
        for number, mixture in enumerate(MIXTURES):
            wrong = too_small(
                pair,
                [found[release] for release in mixture],
                [SEEN_AS[release] for release in mixture],
                f"mixture_{number}",
            )
            violations += bool(wrong)
            print(f"{' and '.join(mixture)} beside this release: {wrong or 'no ticket at or below a bump'}", flush=True)
    print(f"violations: {violations}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
