"""How the recipe of each language is built and run; `tests/recipes/drivers` has the programs that call its code."""

import glob
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.commands import Ran
from tests.harness.ticketd import REPOSITORY
from tests.recipes.pages import write_files

DRIVERS = Path(__file__).resolve().parent / "drivers"
PRISMA_MODULES = REPOSITORY / ".venv/recipes/node_modules"
JARS = Path("/usr/share/java")
_CLASS_PATH = ":".join(
    f"{JARS}/{name}.jar"
    for name in (
        "eclipselink",
        "eclipselink-jpa-2.1-spec",
        "org.eclipse.persistence.jpa.jpql",
        "geronimo-jta-1.2-spec",
        "h2",
    )
)


@dataclass(frozen=True, eq=False)
class Language:
    """A recipe and what runs it.

    `needs`: commands, and paths with `*` in them, each with what installs it.
    `drivers`: files of `drivers/`, and where each goes.
    `build`: commands that are run once.
    `command`: the program, to which a test adds its arguments.
    `replacing`: text of the page that has to be another here, and what replaces it.
    `stores`: whether the program has `store`.
    """

    page: str
    needs: Mapping[str, str]
    drivers: Mapping[str, str]
    command: Sequence[str]
    build: Sequence[Sequence[str]] = ()
    replacing: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    stores: bool = True

    def prepare(self, directory: Path) -> "Recipe":
        """Write the page's files and the drivers into a directory, and build them. AssertionError: what is missing."""
        missing = {package for need, package in self.needs.items() if not shutil.which(need) and not glob.glob(need)}
        assert not missing, f"to run {self.page}, install {', '.join(sorted(missing))}"
        write_files(self.page, directory, dict(self.replacing))
        for name, place in self.drivers.items():
            path = directory / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(DRIVERS / name, path)
        recipe = Recipe(self, directory)
        for command in self.build:
            ran = recipe.run_command(command, {}, timeout=110)
            assert ran.status == 0, (command, ran.output[-2000:], ran.errors[-2000:])
        return recipe


@dataclass(frozen=True)
class Recipe:
    """A recipe that is ready to run in its directory."""

    language: Language
    directory: Path

    def run(self, *arguments: object, urls: Sequence[str], token: str, database: str = "") -> Ran:
        """Run the program to its end, with these ticket servers and this token."""
        settings = {"TICKETD_URLS": ",".join(urls), "TICKETD_TOKEN": token, "DATABASE": database}
        return self.run_command([*self.language.command, *map(str, arguments)], settings, timeout=60)

    def run_command(self, command: Sequence[str], settings: Mapping[str, str], timeout: float) -> Ran:
        """Run one command in the directory; of the outer environment it sees what finds programs."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=kept | dict(self.language.environment) | dict(settings),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


LANGUAGES = {
    "bash": Language(
        "plain-sql.md",
        needs={"bash": "bash", "curl": "curl", "mysql": "mariadb-client-core"},
        drivers={},
        command=["bash", "-c", 'source take.sh; "$@"', "bash"],
        stores=False,
    ),
    "Node.js": Language(
        "node-prisma.md",
        needs={"node": "nodejs"},
        drivers={"take.mjs": "take.mjs"},
        command=["node", "take.mjs"],
        stores=False,
    ),
    "Ruby": Language(
        "ruby-rails.md",
        needs={
            "ruby": "ruby",
            "/usr/share/rubygems-integration/all/specifications/activerecord-*": "ruby-activerecord",
            "/usr/lib/ruby/vendor_ruby/sqlite3.rb": "ruby-sqlite3",
        },
        drivers={"main.rb": "main.rb"},
        command=["ruby", "main.rb"],
    ),
    "PHP": Language(
        "php-laravel.md",
        needs={
            "php": "php-cli",
            "/usr/lib/php/*/curl.so": "php-curl",
            "/usr/lib/php/*/pdo_sqlite.so": "php-sqlite3",
            "/usr/share/php/Illuminate/Database/autoload.php": "php-illuminate-database",
            "/usr/share/php/Illuminate/Events/autoload.php": "php-illuminate-events",
            "/usr/share/php/Illuminate/Http/autoload.php": "php-illuminate-http",
            "/usr/share/php/GuzzleHttp/autoload.php": "php-guzzlehttp-guzzle",
        },
        drivers={"main.php": "main.php"},
        command=["php", "-d", "display_errors=stderr", "main.php"],
    ),
}
"""What `make test` runs."""

HEAVY_LANGUAGES = {
    "Go": Language(
        "go.md",
        needs={
            "go": "golang-go",
            "/usr/share/gocode/src/github.com/go-sql-driver/mysql": "golang-github-go-sql-driver-mysql-dev",
        },
        drivers={"main.go": "main.go"},
        build=[["go", "vet", "."], ["go", "build", "-o", "recipe", "."]],
        command=["./recipe"],
        environment={"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "-p=1", "CGO_ENABLED": "0"},
    ),
    "Java": Language(
        "java-jpa.md",
        needs={
            "javac": "default-jdk-headless",
            f"{JARS}/eclipselink.jar": "libeclipselink-java",
            f"{JARS}/h2.jar": "libh2-java",
        },
        drivers={"Main.java": "Main.java", "persistence.xml": "META-INF/persistence.xml"},
        build=[["javac", "-cp", f".:{_CLASS_PATH}", "Main.java", "Tickets.java", "Photo.java", "PhotoAlbum.java"]],
        command=["java", "-cp", f".:{_CLASS_PATH}", "Main"],
        replacing={"jakarta.persistence": "javax.persistence"},
    ),
    "Prisma": Language(
        "node-prisma.md",
        needs={"node": "nodejs", str(PRISMA_MODULES): "npm, and run `make long`, which installs Prisma with it"},
        drivers={"main.mjs": "main.mjs", "prisma.config.ts": "prisma.config.ts"},
        build=[
            ["ln", "-s", str(PRISMA_MODULES), "node_modules"],
            ["node_modules/.bin/prisma", "generate"],
        ],
        command=["node", "main.mjs"],
        # `generate` wants this program to be there, would download it, and does not run it
        environment={"PRISMA_SCHEMA_ENGINE_BINARY": shutil.which("true") or "", "CHECKPOINT_DISABLE": "1"},
    ),
}
"""What `make long` runs as well: the tools take hundreds of megabytes."""
