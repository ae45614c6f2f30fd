"""docker-compose.yml, from the first start to the end, with the commands that docs/operations gives.

Absent, not skipped, where no Docker engine with the images is: test_bad_day.py has such faults without containers.
"""

import json
from collections.abc import Iterator

import pytest

from app.common.version import VERSION
from tests.deploy.compose import IMAGES, ComposeFront, possible
from tests.deploy.front import (
    SERVERS,
    kill_a_server,
    nobody_notices,
    restart_servers,
    steady,
    wait_until_all_pass,
)
from tests.documents import pages
from tests.harness.load import Load

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

MAKE_ACCOUNT = pages.block("docs/operations/compose.md", "head -c 24 /dev/urandom | base64 | tr -d '/+=' |\n  install")
USE_ACCOUNT = pages.block("docs/operations/compose.md", "echo TICKETS_DATABASE_USER=tickets_2 >> .env")
DROP_ACCOUNT = pages.block(
    "docs/operations/compose.md",
    "for database in mysql-odd mysql-even; do\n  docker compose exec $database bash /docker-",
)
REMOVE_PASSWORD = pages.block("docs/operations/compose.md", "rm deploy/secrets/")


@pytest.fixture(scope="module")
def front() -> Iterator[ComposeFront]:
    """Everything, started after the development passwords were replaced."""
    compose = ComposeFront()
    before = {path: path.read_bytes() for path in compose.folder.glob("deploy/secrets/*_password")}
    compose.run(pages.block("docs/operations/compose.md", "for secret in mysql_root_password"))
    assert before
    assert all(len(path.read_bytes()) > 20 and path.read_bytes() != old for path, old in before.items())
    assert not compose.run("git diff --name-only"), "git would commit a password"
    with compose:
        yield compose


def exchanged(script: str) -> str:
    """The page's steps with the two accounts' names exchanged."""
    return (
        script.replace("tickets_2", "\0")
        .replace("tickets_database", "tickets_2_database")
        .replace("drop tickets", "drop tickets_2")
        .replace("\0", "tickets")
    )


if possible():

    def test_nobody_notices_a_bad_day_of_docker_compose(front: ComposeFront) -> None:
        with nobody_notices(steady(front)) as load:
            restart_servers(front)
            kill_a_server(front, load, 2)
            for number in (0, 1):
                front.stop_database(number)
                load.run_for(2)
                front.start_database(number)
                wait_until_all_pass(front)

    def test_nobody_notices_that_the_password_is_changed_and_changed_again(front: ComposeFront) -> None:
        with Load([front.address], clients=20, pause=0.1, timeout=20) as load:
            front.run(MAKE_ACCOUNT)
            with pytest.raises(AssertionError, match="'tickets' is in use: "):
                front.run(DROP_ACCOUNT)
            front.run(USE_ACCOUNT)
            assert not front.run("git status --porcelain deploy/secrets .env"), "git would commit a password"
            wait_until_all_pass(front)
            front.run(DROP_ACCOUNT)
            front.run(REMOVE_PASSWORD)
            load.run_for(3)  # each database is probed meanwhile, and reconnects would be refused
            for script in (MAKE_ACCOUNT, USE_ACCOUNT, DROP_ACCOUNT, REMOVE_PASSWORD):
                front.run(exchanged(script))
                wait_until_all_pass(front)
            load.run_for(3)
        assert not load.result.failures(), (load.result, load.result.failures()[:5])
        assert not load.result.duplicates()
        assert load.result.tickets() > 1000

    def test_the_password_of_an_account_in_use_is_not_changed(front: ComposeFront) -> None:
        """What the first releases' instructions did: each server that reconnected was locked out."""
        account = front.folder / "deploy/secrets/tickets_database_password"
        old = account.read_text(encoding="utf-8")
        make = "docker compose exec mysql-odd bash /docker-entrypoint-initdb.d/02-application-user.sh"
        account.write_text("another-one\n", encoding="utf-8")
        with pytest.raises(AssertionError, match="'tickets' is in use with another password"):
            front.run(make)
        account.write_text(old, encoding="utf-8")
        front.run(make)
        for number in SERVERS:
            assert front.health(number) == "pass"

    def test_clients_verify_the_front_and_changes_need_the_token(front: ComposeFront) -> None:
        block = pages.block("docs/operations/compose.md", "docker compose exec -T tickets-1 cat")
        front.run(block, {"localhost:8443": f"localhost:{front.tls_port}"})
        assert not front.run("git status --porcelain tickets-ca.pem")
        url = f"https://localhost:{front.tls_port}/sequence/albums"
        status = front.run(f"curl --silent --cacert tickets-ca.pem -X PUT {url} -o /dev/null -w '%{{http_code}}'")
        assert status == "401"

    def test_every_connection_to_a_database_is_verified_tls(front: ComposeFront) -> None:
        query = (
            "SELECT SUM(CONNECTION_TYPE = 'SSL/TLS'), COUNT(*) FROM performance_schema.threads "
            "WHERE PROCESSLIST_USER = 'tickets'"
        )
        login = "MYSQL_PWD=$(</run/secrets/mysql_root_password) mysql --user=root --batch --skip-column-names"
        for database in ("mysql-odd", "mysql-even"):
            said = front.run(f"docker compose exec -T {database} bash -c '{login}' <<< \"{query}\"")
            encrypted, all_of_them = said.split()
            assert int(encrypted) == int(all_of_them) > 0

    def test_no_container_has_a_capability_or_can_get_one(front: ComposeFront) -> None:
        for name in ("mysql-odd", "mysql-even", "tickets-1", "tickets-2", "tickets-3", "haproxy"):
            status = front.run(f"docker compose exec -T {name} cat /proc/1/status")
            values = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
            assert int(values["CapBnd"], 16) == 0, name
            assert values["NoNewPrivs"] == "1", name

    def test_the_image_has_no_pip_and_says_what_it_holds(front: ComposeFront) -> None:
        left = front.run(
            f"docker run --rm --user 0 ticket-server:{VERSION} "
            r"find / -xdev \( -name pip -o -name 'pip-*' -o -name 'pip3*' -o -name ensurepip \)"
        )
        assert left == ""
        bill = json.loads(front.run("docker compose exec -T tickets-1 cat /opt/ticketd/sbom.cdx.json"))
        assert bill["metadata"]["component"]["version"] == VERSION
        held = {each["name"] for each in bill["components"]}
        assert {"fastapi", "uvicorn", "cryptography", "python"} <= held
        assert not {"pip", "setuptools", "pytest"} & held

    def test_the_image_alone_serves_only_what_is_named_and_stops_with_one_line(front: ComposeFront) -> None:
        image = f"ticket-server:{VERSION}"
        volume = f"{front.environment['COMPOSE_PROJECT_NAME']}-embedded"
        embedded = "--env TICKETS_DATABASES=embedded"

        def stopped(options: str) -> str:
            said = front.run(f"docker run --rm {options} {image} 2>&1 || echo status $?")
            line, status = said.splitlines()
            assert status == "status 2"
            return line

        assert "TICKETS_DATABASES: it is unset, and TICKETS_HOST '0.0.0.0' is beyond loopback" in stopped("")
        assert "TICKETS_DATABASES: '' cannot be used" in stopped("--env TICKETS_DATABASES=")
        of_root = stopped(f"{embedded} --env TICKETS_DATA_DIR=/data --volume /data")
        assert (
            "TICKETS_DATA_DIR: the folder /data cannot be used (Permission denied: /data belongs to user 0" in of_root
        )
        assert "the folder /ticket-data cannot be used (Read-only file system)" in stopped(f"{embedded} --read-only")

        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/ticket/photos', timeout=5).read())"
        for options in ("", f"--volume {volume}:/ticket-data", f"--read-only --volume {volume}:/ticket-data"):
            said = front.run(
                f"""
                id=$(docker run --detach {embedded} {options} {image})
                trap 'docker rm --force --volumes "$id" > /dev/null' EXIT
                for _ in $(seq 50); do docker exec "$id" python -c "{ask}" 2> /dev/null && break; sleep 0.5; done
                docker logs "$id" 2>&1
                """
            )
            assert '"sequence":"photos","id":' in said
            assert "serves the embedded pair of ticket databases folder=/ticket-data" in said
        front.run(f"docker volume rm {volume}")

    def test_the_steps_for_systemd_install_a_server(front: ComposeFront) -> None:
        """In a container, as root, with a `systemctl` that does nothing: no systemd runs there."""
        password = "/dev/stdin /etc/ticketd/database_password"
        settings = pages.block("docs/operations/systemd.md", "install -d -m 0755 /etc/ticketd")
        assert password in settings
        script = (
            pages.block("docs/operations/systemd.md", "python3 -m venv /opt/ticketd")
            + pages.block("docs/operations/databases.md", "/opt/ticketd/bin/python deploy/tls/")
            + settings.replace(password, f"{password} <<< the-password")
        )
        check = """
            /opt/ticketd/bin/ticketd --version
            stat --format '%a %n' /etc/ticketd/* /etc/systemd/system/ticketd@.service
            cat /etc/ticketd/database_password
        """
        (front.folder / "steps.sh").write_text(
            f'systemctl() {{ echo systemctl "$@"; }}\n{script}{check}', encoding="utf-8"
        )
        said = front.run(
            f"docker run --rm --network host --volume {front.folder}:/source:ro {IMAGES[0]} "
            "bash -euc 'cp -r /source /work && cd /work && bash -eu steps.sh'"
        )
        assert VERSION in said
        assert all(f"600 /etc/ticketd/{name}" in said for name in ("database_password", "tokens", "admin_tokens"))
        assert "644 /etc/ticketd/databases-ca.pem" in said
        assert "the-password" in said
        assert "systemctl enable --now ticketd@8001 ticketd@8002" in said
