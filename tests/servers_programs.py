"""The programs of the database servers: where they are, and how each makes an empty data directory."""

import atexit
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

Engine = Literal["mariadb", "mysql", "postgresql", "redis"]
MYSQLD = "TICKETS_TEST_MYSQLD"
"""The environment variable that names MySQL's mysqld. Without it the tests run on the other engines only."""

SMALL: dict[Engine, list[str]] = {
    "mariadb": ["--innodb-log-file-size=8M", "--innodb-autoextend-increment=1"],
    "mysql": ["--innodb-redo-log-capacity=8M", "--mysqlx=OFF"],
}
"""Options that keep the files of a new server small, because each server begins with a copy of such files."""
homes = Path("/tmp")
"""Where the servers' directories lie."""
_TEMPLATES = "TESTS_TEMPLATES"
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])


def engines(*wanted: Engine) -> list[Engine]:
    """The engines of this run, or the wanted ones among them.

    MariaDB, PostgreSQL and Redis always take part, MySQL if TICKETS_TEST_MYSQLD names its server.
    """
    found: list[Engine] = ["mariadb", "postgresql", "redis"]
    found += ["mysql"] * bool(os.environ.get(MYSQLD))
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


def as_unprivileged() -> list[str]:
    """The beginning of a command that root runs as the user `postgres`, because PostgreSQL refuses root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []


def new_home(engine: Engine) -> Path:
    """A new temporary directory for a server, owned by the server's user.

    It does not lie below pytest's directories: PostgreSQL's user may not enter those, and the path of a socket may have
    107 characters at most.
    """
    home = Path(tempfile.mkdtemp(prefix=f"tickets-{engine}-", dir=homes))
    if engine == "postgresql" and os.geteuid() == 0:
        shutil.chown(home, "postgres", "postgres")
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


@functools.cache
def templates() -> Path:
    """The directory of `template`, for this process and those that it starts. It goes with the first one of them."""
    if _TEMPLATES not in os.environ:
        os.environ[_TEMPLATES] = tempfile.mkdtemp(prefix="tickets-templates-")
        atexit.register(shutil.rmtree, os.environ[_TEMPLATES], ignore_errors=True)
    return Path(os.environ[_TEMPLATES])


def template(engine: Engine) -> Path:
    """The data directory of an empty server, to be copied. The first process that asks makes it, the others wait."""
    cache = templates()
    found = cache / engine
    with (cache / f"{engine}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if engine == "redis":  # it begins with an empty directory
            found.mkdir(exist_ok=True)
        elif not found.exists():
            home = new_home(engine)
            try:
                copy_directory(_initialise(engine, home), made := found.with_name(f"{engine}.new"))
                made.rename(found)
            finally:
                shutil.rmtree(home, ignore_errors=True)
    return found


def _initialise(engine: Engine, home: Path) -> Path:
    """Make the data of an empty server, and return their directory."""
    data, as_root = home / "data", ["--user=root"] if os.geteuid() == 0 else []
    if engine == "postgresql":
        command = [*as_unprivileged(), program("postgresql", "initdb"), "-D", str(data), "-U", "postgres"]
        command += ["--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    elif engine == "mysql":
        command = [program("mysql"), "--no-defaults", *as_root, "--initialize-insecure"]
    else:
        command = [program("mariadb", "mariadb-install-db"), "--no-defaults", *as_root, "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
    if engine in SMALL:
        command += [*SMALL[engine], f"--datadir={data}"]
    environment = os.environ | {"TMPDIR": str(home)}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=110)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (data / "auto.cnf").unlink(missing_ok=True)  # MySQL's identity, and each server needs its own
    return data
