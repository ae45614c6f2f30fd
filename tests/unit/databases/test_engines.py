"""An engine is named by its own folder, and by app/databases/engines.py alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
from app.databases import engines

PROGRAM = Path(app.__file__).parent
DATABASES = PROGRAM / "databases"
FOLDERS = sorted(path.parent for path in DATABASES.glob("*/engine.py"))
MAP = PROGRAM / "__init__.py"
"""Its docstring is the map of the program, which lists every folder."""
IDS_INSIDE = {PROGRAM / "kinds/instagram_sql.py", PROGRAM / "commands/kinds.py"}
"""`ticketd sql` prints PL/pgSQL: ids that PostgreSQL makes by itself, whatever the ticket databases are."""
ELSEWHERE = [
    path
    for path in sorted(PROGRAM.rglob("*.py"))
    if path not in (MAP, DATABASES / "engines.py", *IDS_INSIDE)
    and not any(folder in path.parents for folder in FOLDERS)
]
NAMES = {word.lower() for engine in engines.LISTED for word in (engine.name, *engine.drivers)}
NAMED = re.compile("|".join({*NAMES, *(folder.name for folder in FOLDERS), "mariadb", "innodb", "auto_increment"}))


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_folder_with_an_engine_is_listed() -> None:
    assert len(FOLDERS) > 1
    assert {type(engine).__module__ for engine in engines.LISTED} == {
        f"app.databases.{folder.name}.engine" for folder in FOLDERS
    }
    assert len({engine.address for engine in engines.LISTED}) == len(engines.LISTED)


def test_nothing_else_names_an_engine() -> None:
    found = [
        f"{path.relative_to(PROGRAM)}:{number}: {line.strip()}"
        for path in ELSEWHERE
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if NAMED.search(line.lower())
    ]
    assert found == []


async def test_traces_name_the_engine(tmp_path: Path) -> None:
    odd, _even = engines.embedded_pair(tmp_path)
    urls = engines.read_url("mysql://u@h/d"), engines.read_url("postgresql://u@h/d"), odd
    made = [engines.make_database(address, 1, 2, 1.0, lambda *_: None) for address in urls]
    assert [database.system for database in made] == ["mysql", "postgresql", "sqlite"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_engine_imports_no_other_one_and_no_other_ones_driver(folder: Path) -> None:
    others = {f"app.databases.{other.name}" for other in FOLDERS if other != folder}
    drivers = {driver for engine in engines.LISTED for driver in engine.drivers}
    own = {
        driver
        for engine in engines.LISTED
        if type(engine).__module__.split(".")[2] == folder.name
        for driver in engine.drivers
    }
    found = {
        name
        for path in sorted(folder.rglob("*.py"))
        for name in imported_by(path)
        if any(name == other or name.startswith(f"{other}.") for other in {*others, "app.databases.engines"})
        or name.partition(".")[0] in drivers - own
    }
    assert found == set()


def test_only_its_own_folder_imports_a_driver() -> None:
    drivers = {driver for engine in engines.LISTED for driver in engine.drivers}
    assert {
        name for path in (*ELSEWHERE, MAP) for name in imported_by(path) if name.partition(".")[0] in drivers
    } == set()


def test_the_contracts_on_imports_name_no_engine_but_those_inside_one() -> None:
    text = (PROGRAM.parent / "pyproject.toml").read_text()
    contracts = re.findall(r"\[\[tool\.importlinter\.contracts\]\]\n.*?(?=\n\n|\Z)", text, re.DOTALL)
    named = [contract for contract in contracts if NAMED.search(contract.lower())]
    assert len(contracts) > len(named)
    for contract in named:
        assert re.search(r'containers = \["app\.databases\.\w+"\]', contract), contract
