"""docs/settings.md: every setting, from `app.settings` and from what each command's help lists."""

import re
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout, suppress
from io import StringIO

from app.commands.cli import build_parser
from app.commands.remote import DEFAULT_URL
from app.commands.server_connection import TOKEN_VARIABLE, URL_VARIABLE
from app.setting_names import FILE, PREFIX
from app.settings import SECRETS, Settings
from docs.generator.blocks import table

FIRST = (
    "databases",
    "database_password",
    "host",
    "port",
    "tokens",
    "admin_tokens",
    "reserve_seconds",
    "redis_port",
)
"""The settings that people set first."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "The eight to set first": FIRST,
    "The ring": ("increment", "unverified", "data_dir"),
    "Deadlines and intervals": ("request_timeout", "database_timeout", "probe_interval", "drain_seconds"),
    "Limits": ("max_connections",),
    "Logs": ("log_level", "log_format", "access_log"),
}
UNSET: Mapping[str, str] = {
    "databases": "unset: the embedded pair",
    "increment": "unset: the increment that the databases have recorded",
    "redis_port": "unset: the server does not speak the Redis protocol",
    "tokens": "unset: the server asks for no token",
    "max_connections": "unset: 10,000, or the hard limit on open files less 192 where that is lower",
}
"""The effect of leaving a setting unset, for settings without a fixed default."""
DETAILS: Mapping[str, tuple[str, ...]] = {
    "databases": (
        "Write one URL for each ticket database. The first database has offset 1, the second offset 2. Separate two "
        "URLs by white space, or by a comma before the next scheme and `://`; the server reads any other comma as "
        "part of a URL. In a password, percent-encode `#`, `/`, `?` and `@`, or leave the password out and set "
        "[TICKETS_DATABASE_PASSWORD](#tickets_database_password).",
        "`embedded` stands for two SQLite files on this machine, one for odd ids and one for even ids. The server "
        "also uses these where the setting is unset, but only while it listens on loopback. Where it listens beyond "
        "loopback, you have to name the databases, or `embedded`: otherwise the server does not start.",
        "[MySQL and MariaDB](databases/mysql-and-mariadb.md) and [PostgreSQL](databases/postgresql.md) say what the "
        "parts of a URL mean.",
    ),
    "tokens": (
        "Clients send a token as `Authorization: Bearer TOKEN`. Use long random tokens. Where the tokens come from a "
        "file, the server reads the file again when it changes and on SIGHUP. To replace a token without a restart, "
        "add the new token to the file, move the clients to it, and then remove the old token.",
    ),
    "admin_tokens": (
        "An admin token may create and bump sequences, and may do everything else. While this setting is unset, "
        "every token of [TICKETS_TOKENS](#tickets_tokens) may do so. If you set only this one, drawing a ticket "
        "needs no token, and creating or bumping a sequence does.",
    ),
    "reserve_seconds": (
        "The server keeps tickets of each plain sequence in memory: as many as the sequence uses in this time at its "
        "present rate, and 1,000,000 at most. Requests get these tickets first and wait for no database. When the "
        "server is killed or stopped, the tickets that it held are lost, which leaves a gap in the ids.",
        "Set the longest outage of all databases that clients should not notice: 5 to 10 seconds cover a failover or a "
        "restart. If only speed matters, 2 seconds suffice. [Tickets drawn ahead](reserve.md) has the details.",
    ),
    "redis_port": (
        "The server speaks the Redis protocol on this port of [TICKETS_HOST](#tickets_host), beside HTTP. Tokens "
        "travel in clear over this port.",
    ),
    "increment": (
        "Leave it unset. On databases without tickets, the server then takes the number of databases. An increment "
        "that the ring had before is a note, and the server draws with the recorded one. With any other increment "
        "the server draws nothing until you correct it. `ticketd grow` takes the new increment from its own flag and "
        "ignores this variable.",
    ),
    "unverified": (
        "`serve` keeps a single database in use while the others are away. `refuse` stops it until another database "
        "can be asked, so that a database that came back older cannot repeat a ticket meanwhile; requests get 503.",
    ),
    "data_dir": ("Only the embedded pair uses this folder. The container image sets it to `/ticket-data`.",),
    "drain_seconds": (
        "During this time `/readyz` answers 503, so that a load balancer sends new requests elsewhere. A second signal "
        "ends the server at once.",
    ),
    "max_connections": (
        "The limit counts the connections of HTTP and of the Redis protocol together. On each of the 32 further "
        "connections the server answers health checks and `/metrics`; it refuses every other request with 503. Below a "
        "hard limit of 256 open files the server does not start.",
    ),
}
"""Paragraphs about a setting beyond its one line of help."""

_INTRODUCTION = f"""\
# Settings

This page is made from the program itself by `make documents`; a test compares the two.

The server reads its settings once, when it starts. For each setting it takes the first of these that is there:

1. the flag on the command line;
2. the environment variable;
3. the file that the variable with `{FILE}` at its end names.

It is an error to set both the variable and its file. White space at the ends of a value does not count, except in a
password, where only line breaks at the end are removed. A setting that may hold a secret has no flag for the value,
because other users of the machine can read command lines: its flag names a file.
"""

_ERRORS = f"""\
## What stops the start

A command that reads settings ends with exit status 2 and one line if it cannot use one of them. The line names the
variable, what was given (never a secret) and what is expected. These stop it too:

- **A variable that is set and empty**, or a file without content. To get the default, unset the variable.
- **A name that is nearly a setting.** The line names the setting that was probably meant. A name is nearly a setting
  if it differs in upper and lower case, lacks the first S (`TICKET_TOKENS`), or has one letter added, left out,
  changed or swapped with its neighbour.
- **A folder that the embedded pair cannot write to.** The line has the whole path and the reason.

The server logs a warning for every other unknown variable that begins with `{PREFIX}`. It passes over the variables
of the commands (`TICKETD_…`), those of HAProxy and of Compose in this repository, and those that Kubernetes and
Docker set for a service called `tickets`. One such variable is also a setting: if `{PREFIX}PORT` is `tcp://…`, set
`enableServiceLinks: false` in the pod.
"""


def page() -> str:
    """The whole page."""
    readers = {name: _readers(name) for name in Settings.model_fields}
    lines = [_INTRODUCTION, "## All settings", "", *_index(), ""]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _setting(name, readers[name])
    lines += [_ERRORS, *_of_the_commands()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _index() -> Iterable[str]:
    """A table of all settings, each with a link to its own heading."""
    rows = [
        [f"[`{_variable(name)}`](#{_variable(name).lower()})", _default(name), _meaning(name)]
        for names in GROUPS.values()
        for name in names
    ]
    return table(["variable", "default", "meaning"], rows)


def _setting(name: str, readers: list[str]) -> list[str]:
    """One setting: a heading that links can name, what it means, and how it can be given."""
    field = Settings.model_fields[name]
    extra = field.json_schema_extra
    expected = _in_markdown(str(extra["expected"])) if isinstance(extra, dict) else ""
    holds_secret = name in SECRETS
    flag = f"`{_flag(name)} {'FILE' if holds_secret else 'VALUE'}`"
    return [
        f"### {_variable(name)}",
        "",
        f"{_meaning(name)}.",
        "",
        *(line for paragraph in DETAILS.get(name, ()) for line in (paragraph, "")),
        f"- Default: {_default(name)}",
        f"- Accepts: {expected}",
        f"- Flag: {flag}{', a file with the value' if holds_secret else ''}",
        f"- From a file: the file that `{_variable(name)}{FILE}` names",
        f"- Read by: {', '.join(f'`ticketd {command}`' for command in readers)}",
        "",
    ]


def _of_the_commands() -> list[str]:
    """The variables of the commands that ask a running server."""
    asking = ", ".join(f"`{command}`" for command in _commands() if "--url URL" in _help(command))
    return [
        "## The commands that ask a server",
        "",
        f"These commands read none of the settings above: {asking}. They read two variables of their own, and the "
        "flags win over the variables. A variable that is set and empty is an error.",
        "",
        *table(
            ["variable", "default", "meaning", "flag"],
            [
                [f"`{URL_VARIABLE}`", f"`{DEFAULT_URL}`", "the server, or the load balancer in front", "`--url`"],
                [f"`{TOKEN_VARIABLE}`", "unset", "a file with the bearer token", "`--token-file`"],
            ],
        ),
    ]


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-") + ("-file" if name in SECRETS else "")


def _default(name: str) -> str:
    if name in UNSET:
        return UNSET[name]
    value = Settings.model_fields[name].default
    if value in (None, ()):
        return "unset"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(name: str) -> str:
    """The setting's line of help, as a sentence without its full stop."""
    said = _in_markdown(Settings.model_fields[name].description or "")
    return said[:1].upper() + said[1:]


def _in_markdown(text: str) -> str:
    """The text with URLs, variables and other names marked as code."""
    return re.sub(r"[a-z]+://\S+?(?=[,;]?(?:\s|$))|\b\w+_\w+\b|^embedded\b|(?<=or )embedded\b", r"`\g<0>`", text)


def _readers(name: str) -> list[str]:
    """The commands whose help lists this setting's flag."""
    kind = "FILE" if name in SECRETS else "VALUE"
    listed = re.compile(rf"^  {re.escape(_flag(name))} {kind}\b", re.MULTILINE)
    return [command for command in _commands() if listed.search(_help(command))]


def _commands() -> list[str]:
    """Every command that `ticketd --help` lists."""
    return re.findall(r"^ {4}([a-z]+)\b", _help(), re.MULTILINE)


def _help(*words: str) -> str:
    """The text that `ticketd WORDS --help` prints."""
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        build_parser().parse_args([*words, "--help"])
    return said.getvalue()
