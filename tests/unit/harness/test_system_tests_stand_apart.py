"""The system tests see the program from outside alone."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
FILES = sorted(
    [*TESTS.joinpath("harness").rglob("*.py"), *TESTS.joinpath("system").rglob("*.py"), TESTS / "conftest.py"]
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_nothing_of_the_program_is_imported(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported.add(node.module.partition(".")[0])
    assert "app" not in imported
