"""Every command of deploy/README.md is run by a test as it stands there, or says here why it cannot be."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy import readme
from tests.deploy.readme import REPOSITORY

COMPOSE, RUNBOOKS = "tests/deploy/test_compose.py", "tests/system/test_runbooks.py"
ROTATION = f"{COMPOSE}::test_nobody_notices_that_the_password_is_changed_and_changed_again"
RENAMING = "test_a_new_sequence_takes_the_place_of_an_old_one"
TOKENS = "test_tokens_are_rotated_without_a_restart_or_a_failed_request"

RUN = {
    "docker compose up --build --wait": f"{COMPOSE}::test_nobody_notices_a_bad_day_of_docker_compose",
    "for secret in mysql_root_password": f"{COMPOSE}::test_nobody_notices_a_bad_day_of_docker_compose",
    "head -c 24 /dev/urandom | base64 | tr -d '/+=' |\n  install": ROTATION,
    "echo TICKETS_DATABASE_USER=tickets_2 >> .env": ROTATION,
    "for database in mysql-odd mysql-even; do\n  docker compose exec $database bash /docker-": ROTATION,
    "rm deploy/secrets/": ROTATION,
    "docker compose exec -T tickets-1 cat": f"{COMPOSE}::test_clients_verify_the_front_and_changes_need_the_token",
    "/opt/ticketd/bin/python deploy/tls/": f"{COMPOSE}::test_the_steps_for_systemd_install_a_server",
    "install -d -m 0755 /etc/ticketd": f"{COMPOSE}::test_the_steps_for_systemd_install_a_server",
    "CREATE USER 'tickets'@'%'": f"{RUNBOOKS}::test_the_account_of_the_readme_is_all_that_a_ticket_server_needs",
    "python3 -m venv /opt/ticketd": f"{COMPOSE}::test_the_steps_for_systemd_install_a_server",
    "TICKETS_1=": "tests/deploy/test_deploy_files.py::test_haproxy_accepts_its_configuration",
    "CREATE USER 'tickets_2'@'%'": f"{RUNBOOKS}::test_a_password_is_changed_without_a_failed_request",
    "tokens=/path/to/tokens      # the file": f"{RUNBOOKS}::{TOKENS}",
    "tokens=/path/to/tokens\nnew=": f"{RUNBOOKS}::{TOKENS}",
    "ALTER TABLE Tickets32": f"{RUNBOOKS}::test_a_32_bit_sequence_becomes_one_of_64_bits_before_its_end",
    "curl --fail http://127.0.0.1:8000/sequence/photos": f"{RUNBOOKS}::{RENAMING}",
    "DROP TABLE": f"{RUNBOOKS}::test_a_sequence_is_given_up_and_made_again_above_what_it_had_issued",
    "curl --fail -X PUT": f"{RUNBOOKS}::test_an_old_auto_increment_table_becomes_a_sequence",
}
"""How a block begins, and the test that runs it."""

NOT_RUN = {"kubectl create namespace": "there is no cluster; what it names is checked below"}
"""How a block begins, and why no test runs it."""


def test_every_command_is_run_by_a_test_or_says_why_not() -> None:
    listed = {**RUN, **NOT_RUN}
    for block in readme.blocks():
        known = [each for each in listed if block.text.startswith(each)]
        assert len(known) == 1, f"deploy/README.md:{block.line}: no test runs this\n{block.text}"
    assert len(readme.blocks()) == len(listed), "a test runs what is no longer there"


@pytest.mark.parametrize(("beginning", "test"), RUN.items())
def test_the_test_that_is_named_is_there_and_takes_the_block_from_the_readme(beginning: str, test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    assert name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    sources = [REPOSITORY / path, REPOSITORY / "tests/deploy/compose.py"]
    taken = {
        argument.value
        for source in sources
        for call in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "readme.block"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    assert beginning in taken


@pytest.mark.parametrize(
    "block", [each for each in readme.blocks() if each.language == "sh"], ids=lambda each: each.line
)
def test_the_shell_reads_every_block(block: readme.Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False, timeout=10)
    assert not done.stderr


def test_the_files_that_commands_and_prose_name_are_there() -> None:
    text = readme.README.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.])(?:deploy|mysql_init|tests)/[\w@./-]*\w", text))
    generated = {"deploy/secrets/tickets_2_database_password"}  # and what a loop's variable names
    assert len(named) > 8
    assert not [name for name in named - generated if not (REPOSITORY / name).exists()]


def kubernetes(name: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((REPOSITORY / "deploy/kubernetes" / name).read_text(encoding="utf-8"))
    return loaded


def test_the_commands_for_kubernetes_make_what_the_files_ask_for() -> None:
    script = readme.block("kubectl create namespace").replace("\\\n", " ")
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
