"""Every command in README and docs/ is run by a test as it stands there, or says here why it cannot be."""

import ast
import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.documents import pages
from tests.documents.pages import REPOSITORY, Block

ELSEWHERE = {"docs/recipes/": "tests/recipes", "docs/install.md": "tests/packaging"}
"""Pages whose blocks have tests of their own, and where these are."""

NOT_RUN = {
    ("README.md", "make run"): "it installs into the .venv that the tests run in; its steps are checked below",
    ("README.md", "python3 -m venv ticketd-env"): "it asks a package index; `make install-check` does",
    ("docs/client.md", "pip install ./client"): "as above",
    ("docs/evidence.md", ""): "they run for minutes to hours; that they exist is checked below",
    ("docs/performance.md", ""): "as above",
    ("docs/operations/kubernetes.md", "kubectl create"): "there is no cluster; what it names is checked below",
}
"""The page, how a block begins, and why no test runs it."""

BY_LANGUAGE = {"console": "tests/documents/test_consoles.py", "python": "tests/documents/test_python.py"}
"""Languages of which a test takes every block."""


def with_commands() -> list[Block]:
    """The blocks that somebody types or copies."""
    found = [each for page in pages.pages() for each in pages.blocks(page) if each.language in pages.COMMANDS]
    return [each for each in found if not each.page.startswith(tuple(ELSEWHERE))]


def taken() -> set[tuple[str, str]]:
    """The page and the beginning of each block that a test takes."""
    found = set()
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pages.block" and path != Path(__file__):
                constants = [each.value for each in call.args if isinstance(each, ast.Constant)]
                if len(constants) == 2:
                    found.add((str(constants[0]), str(constants[1])))
    return found


def test_every_block_says_what_language_it_is_in() -> None:
    languages = pages.COMMANDS | {"text", "ini", "json"}
    found = [each for page in pages.pages() for each in pages.blocks(page)]
    unknown = [each for each in found if each.language not in languages and not each.page.startswith(tuple(ELSEWHERE))]
    assert not [f"{each.page}:{each.line}: {each.language!r}" for each in unknown]


def test_every_command_is_run_by_a_test_or_says_why_not() -> None:
    run = [pages.block(page, beginning) for page, beginning in taken()]
    left_out = set()
    for each in with_commands():
        if each.language in BY_LANGUAGE or any(each.text in text for text in run):
            continue
        reasons = [key for key in NOT_RUN if key[0] == each.page and each.text.startswith(key[1])]
        assert len(reasons) == 1, f"{each.page}:{each.line}: no test runs this\n{each.text}"
        left_out |= set(reasons)
    assert left_out == set(NOT_RUN), "a reason for a block that is no longer there, or that a test runs"


def test_the_tests_of_other_pages_are_there() -> None:
    assert all((REPOSITORY / name).exists() for name in (*BY_LANGUAGE.values(), *ELSEWHERE.values()))


@pytest.mark.parametrize(
    "block", [each for each in with_commands() if each.language == "sh"], ids=lambda each: f"{each.page}:{each.line}"
)
def test_the_shell_reads_every_block(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False, timeout=10)
    assert not done.stderr


def test_what_the_documents_have_somebody_make_or_run_exists() -> None:
    text = "\n".join(each.text for each in with_commands() if each.language == "sh")
    text += "\n".join(code for page in pages.documents() for code in re.findall(r"`([^`\n]+)`", pages.prose(page)))
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
    assert {"run", "test"} <= made <= targets
    modules = set(re.findall(r"python -m ((?:app|tests|bench|docs)[\w.]*)", text))
    assert not [name for name in sorted(modules) if importlib.util.find_spec(name) is None]


def test_make_run_ends_in_a_server() -> None:
    (command,) = shlex.split(pages.block("README.md", "make run"), comments=True)[1:]
    make = ["make", "--no-print-directory", "--dry-run", command]
    planned = subprocess.run(make, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=30)
    assert planned.stdout.splitlines()[-1] == "exec .venv/bin/ticketd serve"


def kubernetes(name: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((REPOSITORY / "deploy/kubernetes" / name).read_text(encoding="utf-8"))
    return loaded


def test_the_commands_for_kubernetes_make_what_the_files_ask_for() -> None:
    script = pages.block("docs/operations/kubernetes.md", "kubectl create").replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in script.splitlines()]
    namespace = kubernetes("kustomization.yaml")["namespace"]
    assert commands[0] == ["kubectl", "create", "namespace", namespace]
    deployment = (REPOSITORY / "deploy/kubernetes/deployment.yaml").read_text(encoding="utf-8")
    assert commands[1][:5] == ["kubectl", "create", "secret", "generic", "ticket-server"]
    assert commands[1][5:7] == ["-n", namespace]
    assert "secretName: ticket-server" in deployment
    made = {each.removeprefix("--from-file=").partition("=")[0] for each in commands[1][7:]}
    settings = (REPOSITORY / "deploy/kubernetes/kustomization.yaml").read_text(encoding="utf-8")
    read = set(re.findall(r"/run/secrets/ticket-server/([\w.-]+)", deployment + settings))
    monitor = (REPOSITORY / "deploy/kubernetes/service-monitor/service-monitor.yaml").read_text(encoding="utf-8")
    read |= set(re.findall(r"name: ticket-server\n +key: ([\w-]+)", monitor))
    assert made == read
    assert commands[2][:3] == ["kubectl", "apply", "-k"]
    assert (REPOSITORY / Path(commands[2][3]) / "kustomization.yaml").is_file()
