"""The examples of the pages, typed into a shell beside a real server that has its embedded pair."""

import re
import subprocess

import pytest
from redis import Redis

from tests.documents.pages import commands, read
from tests.ticketd import PROGRAM, TicketServer, environment

SHELL = f"""set -euo pipefail
curl() {{ command curl --silent --show-error "$@"; }}
ticketd() {{ {" ".join(PROGRAM)} "$@"; }}
"""
DEADLINE = 120.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{name}.md" for name in ("http", "kinds", "commands", "moving-over"))]
)
def test_an_example_prints_what_the_page_shows(page: str) -> None:
    examples = [each for each in commands(read(page)) if each[0].startswith(("curl ", "ticketd "))]
    assert len(examples) > 1
    with TicketServer() as server:
        variables = environment(data_dir=server.settings["data_dir"]) | {"TICKETD_URL": server.url}
        for typed, printed in examples:
            script = SHELL + typed.replace("http://127.0.0.1:8000", server.url)
            run = ["bash", "-c", script]
            done = subprocess.run(run, env=variables, capture_output=True, text=True, timeout=DEADLINE, check=False)
            assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"
            # `…` stands for anything, and each number for any number
            escaped = re.sub(r"(\\\s)+", r"\\s+", re.escape(printed.strip()))
            wanted = re.sub(r"\d+", r"\\d+", escaped).replace("…", ".*")
            assert re.fullmatch(wanted, done.stdout.strip(), re.DOTALL), f"{typed}\nprinted:\n{done.stdout}"


@pytest.mark.timeout(300)
def test_the_examples_of_the_redis_protocol_are_answered() -> None:
    examples = [typed.split()[3:] for typed, _ in commands(read("docs/redis.md"))]
    assert ["INCR", "photos"] in examples
    with TicketServer(speaks_redis=True) as server, Redis(port=server.redis_port, socket_timeout=DEADLINE) as client:
        answers = [client.execute_command(*words) for words in examples]
    kinds = {"INCR": int, "TICKET.TAKE": list, "TICKET.BLOCK": list}
    assert [type(answer) for answer in answers] == [kinds[words[0]] for words in examples]
