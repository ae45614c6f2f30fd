"""Every setting that code, a document or a deployment names exists."""

import re
from collections.abc import Iterator
from pathlib import Path

from app.setting_names import FILE, OTHERS, PREFIX
from app.settings import VARIABLES

REPOSITORY = Path(__file__).resolve().parents[2]
PLACES = (
    "app", "bench", "deploy", "docs", ".ci", "README.md", "CHANGELOG.md", "Dockerfile", "Makefile",
    "docker-compose.yml", "pyproject.toml",
)  # fmt: skip
"""Where settings are named. tests/ is not among them: tests name settings that do not exist, on purpose."""
PICTURES = {".png", ".svg", ".pyc"}
NAME = re.compile(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b")

SETTINGS = set(VARIABLES)


def files() -> Iterator[Path]:
    for place in PLACES:
        path = REPOSITORY / place
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            if each.is_file() and each.suffix not in PICTURES:
                yield each


def read_by_others() -> set[str]:
    """The variables of HAProxy's own configuration, and those that Compose puts in; no ticket server is given them."""
    haproxy = (REPOSITORY / "deploy/haproxy/haproxy.cfg").read_text(encoding="utf-8")
    compose = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
    named = set(NAME.findall(haproxy)) | set(re.findall(rf"\$\{{({PREFIX}[A-Z0-9_]+)", compose))
    return named - SETTINGS


def test_every_variable_that_is_named_is_a_setting() -> None:
    known = SETTINGS | {name + FILE for name in SETTINGS}
    named = {path: set(NAME.findall(path.read_text(encoding="utf-8"))) for path in files()}
    assert set().union(*named.values()) >= SETTINGS
    unknown = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path, names in named.items()
        for name in names - known
        if not OTHERS.fullmatch(name)
    }
    assert not unknown


def test_the_names_of_the_deployment_are_passed_over() -> None:
    of_others = read_by_others()
    assert {"TICKETS_FRONT", "TICKETS_DATABASE_USER"} <= of_others
    assert not [name for name in sorted(of_others) if not OTHERS.fullmatch(name)]
    assert not [name for name in SETTINGS if OTHERS.fullmatch(name)]
