"""tests/, bench/ and docs/generator/ use the program as any other caller does: no private name of another object.

A test that reaches inside breaks with every change of the inside, and proves nothing of what a caller gets.
"""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDERS = ("tests", "bench", "docs/generator")
FILES = sorted(path for folder in FOLDERS for path in REPOSITORY.joinpath(folder).rglob("*.py"))
PUBLIC = {"_replace": "documented of named tuples, whose fields' names it must not collide with"}
"""Names that are public for all their underscore, and why."""
BY_NAME = {"setattr", "delattr", "getattr", "hasattr", "attrgetter", "patch", "object"}
"""What gets at an attribute whose name it is given: builtins, monkeypatch, mock.patch and mock.patch.object."""


def is_private(name: str) -> bool:
    """Whether any part of a dotted name is."""
    return any(
        part.startswith("_") and not (part.startswith("__") and part.endswith("__")) and part not in PUBLIC
        for part in name.split(".")
    )


class PrivateNames(ast.NodeVisitor):
    """The private names of others in one file, each with its line."""

    def __init__(self, text: str) -> None:
        self.found: list[str] = []
        self._classes: list[str] = []
        self.visit(ast.parse(text))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if is_private(node.attr) and not self._is_own(node.value):
            self._add(node, ast.unparse(node))
        self.generic_visit(node)

    def _is_own(self, value: ast.expr) -> bool:
        """Whether it is the object or the class whose code this is: outside a class `self` is somebody else."""
        return bool(self._classes) and ast.unparse(value) in ("self", "cls", "super()", *self._classes)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_private(alias.name):
                self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if is_private(name := f"{node.module or ''}.{alias.name}"):
                self._add(node, name)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if (
                    isinstance(argument, ast.Constant)
                    and isinstance(argument.value, str)
                    and is_private(argument.value)
                ):
                    self._add(node, argument.value)
        self.generic_visit(node)

    def _add(self, node: ast.stmt | ast.expr, name: str) -> None:
        self.found.append(f"line {node.lineno}: {name}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_private_name_of_another_object_is_used(path: Path) -> None:
    assert PrivateNames(path.read_text(encoding="utf-8")).found == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pool._idle.append(1)", "pool._idle"),
        ("pool._closed = True", "pool._closed"),
        ("self._x", "self._x"),
        ("class A:\n    def f(self): return self.pool._idle", "self.pool._idle"),
        ("class A:\n    def f(self, other): return other._x", "other._x"),
        ("class A: pass\nA._x", "A._x"),
        ("from app.common import _errors", "app.common._errors"),
        ("from app._common import errors", "app._common.errors"),
        ("import pymysql._auth", "pymysql._auth"),
        ("monkeypatch.setattr(pool, '_idle', [])", "_idle"),
        ("monkeypatch.setattr('app.pool._idle', [])", "app.pool._idle"),
        ("monkeypatch.delattr(pool, name='_idle')", "_idle"),
        ("mock.patch.object(pool, '_look')", "_look"),
        ("getattr(pool, '_idle')", "_idle"),
    ],
)
def test_one_is_found(text: str, name: str) -> None:
    (found,) = PrivateNames(text).found
    assert found.endswith(f": {name}")


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self): return self._x, super()._x, A._x",
        "class A:\n    @classmethod\n    def f(cls): return cls._x",
        "row._replace(first=1)",
        "from __future__ import annotations",
        "f.__name__, _mine, pool.idle, getattr(pool, 'idle')",
        "run('_layout')",
    ],
)
def test_ones_own_and_what_is_public_are_not(text: str) -> None:
    assert PrivateNames(text).found == []
