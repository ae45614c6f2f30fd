"""Fails where a package has grown too long: lengths.py PACKAGE...

A file may have 350 lines, unless its docstring says that it is "long because" of a reason. A function outside of the
tests may have 50 lines, docstring included. A folder without an __init__.py fails as well, because the
checks of types and imports would pass it over.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST_FILE, LONGEST_FUNCTION = 350, 50


def complaints(path: Path) -> Iterator[str]:
    """Each file or function of this file that is too long, with its length."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = len(text.splitlines())
    if lines > LONGEST_FILE and "long because" not in (ast.get_docstring(tree) or ""):
        yield f"{path}: {lines} lines, {LONGEST_FILE} at most"
    if not (path.parent / "__init__.py").exists():
        yield f"{path}: its folder has no __init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "tests" not in path.parts:
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, {LONGEST_FUNCTION} at most"


found = [each for package in sys.argv[1:] for path in sorted(Path(package).rglob("*.py")) for each in complaints(path)]
print("\n".join(found) or f"Lengths in {', '.join(sys.argv[1:])}: kept.")
sys.exit(bool(found))
