"""Which MySQL-compatible server there is on this machine, and how a fresh data directory of it is made."""

import functools
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.harness.processes import new_directory

_WHERE_TO_LOOK = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin"]
)

# A small redo log makes the template small, and with it every copy of it.
_SMALL = {
    "mysql": ["--innodb-redo-log-capacity=32M"],
    "mariadb": ["--innodb-log-file-size=8M", "--innodb-autoextend-increment=1"],
}


class NoEngine(Exception):
    """There is no MySQL-compatible server to test on."""


@dataclass(frozen=True)
class Engine:
    """A `mysqld` or `mariadbd` program. `kind` is "mysql" or "mariadb", `version` what it says of itself."""

    path: Path
    kind: str
    version: str

    @property
    def is_mariadb(self) -> bool:
        return self.kind == "mariadb"

    def command(self, *options: str) -> list[str]:
        """The program with these options and none from any option file."""
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        return [str(self.path), "--no-defaults", *as_root, *_SMALL[self.kind], *options]


def find_engine() -> Engine:
    """The server of TICKETS_TEST_MYSQLD, or a `mysqld`, or a `mariadbd`. NoEngine says what to install."""
    named = os.environ.get("TICKETS_TEST_MYSQLD")
    if named:
        path: str | None = shutil.which(named)
        if path is None:
            raise NoEngine(f"TICKETS_TEST_MYSQLD is {named!r}, which is not a program")
    else:
        path = shutil.which("mysqld", path=_WHERE_TO_LOOK) or shutil.which("mariadbd", path=_WHERE_TO_LOOK)
    if path is None:
        raise NoEngine(
            "The system tests need a MySQL-compatible server and found neither mysqld nor mariadbd. Install one "
            "(Debian, Ubuntu: `apt-get install mariadb-server-core mariadb-client-core`; it need not run), "
            "or name one in TICKETS_TEST_MYSQLD."
        )
    return _examine(Path(path))


@functools.cache
def _examine(path: Path) -> Engine:
    answer = subprocess.run(
        [path, "--no-defaults", "--version"], capture_output=True, text=True, timeout=30, check=False
    ).stdout
    version = re.search(r"Ver (\S+)", answer)
    if version is None:
        raise NoEngine(f"{path} --version says {answer!r}: neither MySQL nor MariaDB")
    return Engine(path, "mariadb" if "mariadb" in answer.lower() else "mysql", version[1])


FOLDS_NAMES = "--lower-case-table-names=1"


@functools.cache
def template(engine: Engine, *, folds_names: bool = False) -> Path:
    """A data directory just initialised, root without a password and nobody else. Made once, to be copied.

    `folds_names`: for a server with `lower_case_table_names=1`, which MySQL has to be told here.
    """
    base = new_directory("tickets-template-")
    data = base / "data"
    if engine.is_mariadb:
        command = [str(_mariadb_install_db(engine)), "--no-defaults", f"--datadir={data}", *_SMALL["mariadb"]]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        if os.geteuid() == 0:
            command.append("--user=root")
    else:
        command = engine.command("--initialize-insecure", f"--datadir={data}")
        if folds_names:
            command.append(FOLDS_NAMES)
    began = time.monotonic()
    done = subprocess.run(
        command,
        env=os.environ | {"TMPDIR": str(base)},  # see TicketMySQL.start
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    if done.returncode != 0:
        took = time.monotonic() - began
        raise NoEngine(f"{' '.join(command)} failed after {took:.1f} s:\n{done.stdout[-3000:]}")
    # Two servers with the same identity would be one server to everybody who asks.
    (data / "auto.cnf").unlink(missing_ok=True)
    return data


def _mariadb_install_db(engine: Engine) -> Path:
    prefix = engine.path.resolve().parent.parent
    where = os.pathsep.join([_WHERE_TO_LOOK, str(prefix / "bin"), str(prefix / "scripts")])
    for name in ("mariadb-install-db", "mysql_install_db"):
        if found := shutil.which(name, path=where):
            return Path(found)
    raise NoEngine(f"{engine.path} is a MariaDB, but mariadb-install-db is missing (Debian: mariadb-server-core)")
