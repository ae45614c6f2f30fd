"""The table of docs/evidence.md, made from the JSON that `make long` has left."""

import datetime
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.common.version import VERSION
from bench import machine
from docs.generator import blocks
from tests.long.plan import REPOSITORY, Outcome

ROOT = REPOSITORY
PAGE, BLOCK, RESULTS = Path("docs/evidence.md"), "evidence", Path("tests/long/results.json")
_NOTHING_YET = "Nobody has run this for the present release yet. `make long` writes this part."

Data = Mapping[str, Any]
"""A run, as its JSON file holds it."""


def as_data(outcomes: Sequence[Outcome]) -> Data:
    """Everything that the page shows of a run that has just ended."""
    hardware = machine.hardware(Path(tempfile.gettempdir()))
    return {
        "version": VERSION,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "hardware": {name: hardware[name] for name in ("processor", "cores", "memory", "system")},
        "parts": [outcome.row for outcome in outcomes],
    }


def tables(data: Data) -> list[str]:
    """The page's text about a run."""
    hardware = data["hardware"]
    return [
        f"Release {data['version']}, `make long` of {data['date']}, on {hardware['cores']} cores "
        f"({hardware['processor']}), {hardware['memory']} of memory, {hardware['system']}, Python {data['python']}:",
        "",
        *blocks.table(["part", "database server", "took", "what came of it"], data["parts"], right=(2,)),
    ]


def page(root: Path) -> str:
    """The whole page as it should be. `root`: the repository's folder. Raises NoBlock."""
    path = root / RESULTS
    lines = tables(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else [_NOTHING_YET]
    return blocks.replaced((root / PAGE).read_text(encoding="utf-8"), BLOCK, "\n".join(lines))


def publish(data: Data, root: Path) -> None:
    """Keep the run, and write its table into the page."""
    blocks.write(root / RESULTS, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    blocks.write(root / PAGE, page(root))
