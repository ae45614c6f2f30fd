"""Names of settings, commands, flags, codes, kinds, metrics and alerts: those of the pages are those of the program."""

import re

import pytest
from typer.main import get_command

from app.commands.program import app
from app.http.models import CODES
from app.kinds.table import KINDS
from app.operations import metrics
from app.settings import FILE, Settings, flags, variable
from tests.documents.pages import PAGES, code, paths, read, rows

COMMANDS = {
    name: {option for parameter in command.params for option in parameter.opts}
    for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
}
"""The options of each command."""
SETTINGS = {variable(name) for name in Settings.model_fields}
DEPLOYED = paths("Dockerfile", "docker-compose.yml", "mysql_init/*", "deploy/**/*")


def variables(file: str) -> set[str]:
    return set(re.findall(r"\bTICKETS?_[A-Z0-9_]+\b", read(file)))


def test_the_page_of_settings_has_every_setting_with_its_default() -> None:
    found = {cells[0]: cells[1] for cells in rows(read("docs/settings.md")) if len(cells) == 3}
    listed = {name[1]: shown for cell, shown in found.items() if (name := re.match(r"\[`(TICKETS_\w+)`\]", cell))}
    assert listed.keys() == SETTINGS
    for flag in flags():
        default, shown = flag.default, listed[flag.variable]
        if default is None:
            assert shown.startswith("unset")
        elif isinstance(default, float):
            assert float(shown.strip("`")) == default
        else:
            assert shown == f"`{str(default).lower() if isinstance(default, bool) else default}`"


@pytest.mark.parametrize("page", [*PAGES, *DEPLOYED])
def test_a_variable_on_a_page_or_in_a_deployment_is_a_setting_or_belongs_to_the_deployment(page: str) -> None:
    known = SETTINGS | {name + FILE for name in SETTINGS} | {"TICKETS_DEPLOY_", "TICKET_", "TICKETS_TEST_MYSQLD"}
    used = {name for each in DEPLOYED for name in variables(each) if name.startswith("TICKETS_DEPLOY_")}
    assert variables(page) - known - used == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_flag_on_a_page_exists(page: str) -> None:
    for line in code(read(page)):
        found = re.search(r"(?:^|[\s/$`])ticketd ([a-z]\w*)(.*)", re.sub(r"\$\([^)]*\)", "", line))
        if found:
            assert found[1] in COMMANDS, line
            assert set(re.findall(r"(?<!\S)-[-a-z]+", found[2])) <= COMMANDS[found[1]], line


def test_the_page_of_commands_has_every_command_and_flag_and_no_other() -> None:
    page = read("docs/commands.md")
    of_settings = COMMANDS["serve"]
    assert set(re.findall(r"`ticketd ([a-z]+)", page)) == COMMANDS.keys()
    others = {option for name, options in COMMANDS.items() if name != "doctor" for option in options - of_settings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page))
    assert {option for option in others if option.startswith("--")} - {"--help"} <= named
    assert named <= others | of_settings | {"--help", "--version"}


def test_the_pages_of_the_api_and_of_kinds_have_every_code_and_every_kind() -> None:
    errors = read("docs/http.md").partition("## Errors")[2].partition("## ")[0]
    assert {word for cells in rows(errors) for word in re.findall("`([a-z-]+)`", cells[1])} == set(CODES)
    kinds = read("docs/kinds.md").partition("## The kinds side by side")[2].partition("## ")[0]
    assert {cells[0].strip("`") for cells in rows(kinds) if cells[0].startswith("`")} >= set(KINDS)


def test_the_page_of_monitoring_has_every_metric_and_every_alert_with_its_severity() -> None:
    text = read("docs/operations/monitoring.md")
    # a job of Prometheus has such a name, too
    named = {name.removesuffix("_total") for name in re.findall(r"`(tickets_[a-z_]+)`", text)}
    assert named == {name.removesuffix("_total") for name in metrics.HELP}
    rules = re.findall(r"- alert: (\w+).*?severity: (\w+)", read("deploy/prometheus/rules.yml"), re.DOTALL)
    listed = [cells[:2] for cells in rows(text) if cells[0].startswith("`Ticket")]
    assert sorted((name.strip("`"), severity) for name, severity in listed) == sorted(rules)
