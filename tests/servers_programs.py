"""The programs of the database servers: where they are, and how each makes an empty data directory."""

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Engine = Literal["mariadb", "mysql", "postgresql", "redis"]
MYSQLD = "TICKETS_TEST_MYSQLD"
"""The environment variable that names MySQL's mysqld. Without it the tests run on the other engines only."""

SMALL: dict[Engine, list[str]] = {
    "mariadb": ["--innodb-log-file-size=8M", "--innodb-autoextend-increment=1"],
    "mysql": ["--innodb-redo-log-capacity=8M", "--mysqlx=OFF"],
    "postgresql": [],
    "redis": [],
}
"""Options that keep the files of a new server small, because each server begins with a copy of such files."""
homes = Path("/tmp")
"""Where the servers' directories lie."""
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])


def engines(*wanted: Engine) -> list[Engine]:
    """The engines of this run, or the wanted ones among them.

    MariaDB, PostgreSQL and Redis always take part, MySQL if TICKETS_TEST_MYSQLD names its server.
    """
    found: list[Engine] = ["mariadb", "postgresql", "redis"]
    if os.environ.get(MYSQLD):
        found.append("mysql")
    return [engine for engine in found if not wanted or engine in wanted]


def find(name: str, package: str) -> str:
    """The path of a program. FileNotFoundError names Debian's package."""
    if found := shutil.which(name, path=_PATH):
        return found
    raise FileNotFoundError(f"no {name} on this machine: apt-get install {package}, or `make tools`")


def program(engine: Engine, name: str = "") -> str:
    """The path of an engine's server, or of the program `name` beside it. FileNotFoundError says what to install."""
    if engine == "mysql":
        return os.environ[MYSQLD]
    if engine == "redis":
        return find(name or "redis-server", "redis-server")
    if engine == "mariadb":
        return find(name or "mariadbd", "mariadb-server-core")
    # Debian keeps PostgreSQL's programs off the path, in a directory for each version.
    packaged = Path("/usr/lib/postgresql").glob(f"*/bin/{name or 'postgres'}")
    newest = max(packaged, key=lambda path: float(path.parts[-3]), default=None)
    return str(newest) if newest else find(name or "postgres", "postgresql")


def unprivileged() -> pwd.struct_passwd | None:
    """The user that PostgreSQL runs as if this process is root, because PostgreSQL refuses root; otherwise None."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def as_unprivileged() -> list[str]:
    """The beginning of a command that PostgreSQL's user shall run."""
    user = unprivileged()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []


def new_home(engine: Engine) -> Path:
    """A new temporary directory for a server, owned by the server's user.

    It does not lie below pytest's directories: PostgreSQL's user may not enter those, and the path of a socket may have
    107 characters at most.
    """
    home = Path(tempfile.mkdtemp(prefix=f"tickets-{engine}-", dir=homes))
    user = unprivileged()
    if engine == "postgresql" and user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
    return home


def use_memory() -> None:
    """Keep the data of further servers in memory, if 6 GiB are free there. What measures speed leaves them on a disk.

    A killed server loses no more in memory than on a disk, because the kernel keeps what was written in either case.
    """
    global homes  # noqa: PLW0603
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 6 << 30:
        homes = memory


def copy_directory(source: Path, target: Path) -> None:
    """Copy a directory with its owners and times, sharing the blocks on the disk if the file system can."""
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True, timeout=120)


def template(engine: Engine, cache: Path) -> Path:
    """The data directory of an empty server, to be copied. The first process that asks makes it, the others wait."""
    cache.mkdir(exist_ok=True)
    found = cache / engine
    with (cache / f"{engine}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _initialise(engine, found)
    return found


def _initialise(engine: Engine, target: Path) -> None:
    home = new_home(engine)
    data = home / "data"
    as_root = ["--user=root"] if os.geteuid() == 0 else []
    commands: dict[Engine, Callable[[], list[str]]] = {
        "mariadb": lambda: [
            *(program("mariadb", "mariadb-install-db"), "--no-defaults", *as_root, f"--datadir={data}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", *SMALL["mariadb"]),
        ],
        "mysql": lambda: [
            *(program("mysql"), "--no-defaults", *as_root, *SMALL["mysql"]),
            *("--initialize-insecure", f"--datadir={data}"),
        ],
        "postgresql": lambda: [
            *(*as_unprivileged(), program("postgresql", "initdb"), "-D", str(data), "-U", "postgres"),
            *("--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"),
        ],
    }
    try:
        if engine == "redis":  # it begins with an empty directory
            target.mkdir()
            return
        environment = os.environ | {"TMPDIR": str(home)}
        command = commands[engine]()
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=110
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        # auto.cnf is MySQL's identity, and each server needs its own.
        with contextlib.suppress(FileNotFoundError):
            (data / "auto.cnf").unlink()
        copy_directory(data, made := target.with_name(f"{engine}.new"))
        made.rename(target)
    finally:
        shutil.rmtree(home, ignore_errors=True)
