"""docker-compose.yml, from the first start to the end, with the commands that deploy/README.md gives.

Absent, not skipped, where no Docker engine with the images is: test_front.py has the same faults without containers.
"""

from collections.abc import Iterator

import pytest

from app.common.version import VERSION
from tests.deploy import readme
from tests.deploy.compose import IMAGES, ComposeFront, possible
from tests.deploy.front import SERVERS, survive_a_bad_day, wait_until_all_pass
from tests.harness.load import Load

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

MAKE_ACCOUNT = readme.block("head -c 24 /dev/urandom | base64 | tr -d '/+=' |\n  install")
USE_ACCOUNT = readme.block("echo TICKETS_DATABASE_USER=tickets_2 >> .env")
DROP_ACCOUNT = readme.block("for database in mysql-odd mysql-even; do\n  docker compose exec $database bash /docker-")
REMOVE_PASSWORD = readme.block("rm deploy/secrets/")


@pytest.fixture(scope="module")
def front() -> Iterator[ComposeFront]:
    """Everything, started after the development passwords were replaced."""
    compose = ComposeFront()
    before = {path: path.read_bytes() for path in compose.folder.glob("deploy/secrets/*_password")}
    compose.run(readme.block("for secret in mysql_root_password"))
    assert before
    assert all(len(path.read_bytes()) > 20 and path.read_bytes() != old for path, old in before.items())
    assert not compose.run("git diff --name-only"), "git would commit a password"
    with compose:
        yield compose


def exchanged(script: str) -> str:
    """The same steps with the two accounts' names exchanged."""
    return (
        script.replace("tickets_2", "\0")
        .replace("tickets_database", "tickets_2_database")
        .replace("drop tickets", "drop tickets_2")
        .replace("\0", "tickets")
    )


if possible():

    def test_nobody_notices_a_bad_day_of_docker_compose(front: ComposeFront) -> None:
        survive_a_bad_day(front)

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

    def test_the_steps_for_systemd_install_a_server(front: ComposeFront) -> None:
        """In a container, as root, with a `systemctl` that does nothing: no systemd runs there."""
        script = readme.block("python3 -m venv /opt/ticketd").replace("/dev/stdin", "/dev/stdin <<< the-password")
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
        assert "600 /etc/ticketd/database_password" in said
        assert "the-password" in said
        assert "systemctl enable --now ticketd@8001 ticketd@8002" in said
