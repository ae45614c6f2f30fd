"""`ticketd`: the commands."""

import argparse
import os
import sys
from collections.abc import Mapping

from app import log as logging_setup
from app.errors import SettingsError
from app.settings import PREFIX, SECRETS, Flag, Settings, load, unknown_names
from app.version import VERSION


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings", "each is also an environment variable; a flag wins over it")
    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-") + ("-file" if name in SECRETS else "")
        variable = PREFIX + name.upper() + ("_FILE" if name in SECRETS else "")
        default = "" if field.default in (None, ()) else f"; default {field.default}"
        group.add_argument(
            flag,
            dest=name,
            metavar="FILE" if name in SECRETS else "VALUE",
            help=f"{field.description} [{variable}{default}]",
        )


def _settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    flags = {
        name: Flag(flag="--" + name.replace("_", "-") + ("-file" if name in SECRETS else ""), value=value)
        for name in Settings.model_fields
        if (value := getattr(arguments, name, None)) is not None
    }
    return load(environment, flags)


def _serve(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, os.environ)
    logging_setup.set_up(settings.log_level, settings.log_format)
    import logging

    from app.server import run

    for name in unknown_names(os.environ):
        logging_setup.event(logging.getLogger(__name__), logging.WARNING, "unknown setting", name=name)
    run(settings)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="ticketd", description="A ticket server: unique ids, drawn from an odd and an even ticket database."
    )
    parser.add_argument("--version", action="version", version=f"ticketd {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve", help="run the server", description="Run the ticket server until a signal ends it."
    )
    _add_settings(serve)
    serve.set_defaults(run=_serve)
    return parser


def main() -> None:
    """Entry point of `ticketd`; exits with the command's status."""
    arguments = build_parser().parse_args()
    try:
        status = arguments.run(arguments)
    except SettingsError as error:
        print(f"ticketd: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
