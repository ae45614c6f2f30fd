"""No function of the program is longer than 50 lines, docstring included: a longer one holds a second concept."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FILES = sorted(path for room in ("app", "client/ticketd_client") for path in REPOSITORY.joinpath(room).rglob("*.py"))
LONGEST = 50


def long_functions(text: str) -> list[str]:
    """The functions of a file above the limit, each with its line and its length in lines."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    return [f"line {node.lineno}: {node.name}, {length}" for node, length in lengths.items() if length > LONGEST]


def test_both_packages_are_read() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in FILES} == {"app", "client"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_function_is_long(path: Path) -> None:
    assert long_functions(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("start", ["def f():\n", "async def f():\n"])
def test_a_long_function_is_found(start: str) -> None:
    assert long_functions(start + "    pass\n" * (LONGEST - 1)) == []
    assert long_functions(start + "    pass\n" * LONGEST) == [f"line 1: f, {LONGEST + 1}"]


def test_a_long_method_is_found() -> None:
    assert long_functions("class A:\n    def f():\n" + "        pass\n" * LONGEST) == [f"line 2: f, {LONGEST + 1}"]
