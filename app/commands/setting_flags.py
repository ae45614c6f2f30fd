"""The flags for the settings, of the commands that read them: `serve`, `doctor`, `grow`."""

import argparse
from collections.abc import Container

from app.common.errors import SettingsError
from app.setting_names import PREFIX
from app.settings import SECRETS, Flag, Settings

ALL = tuple(Settings.model_fields)


def add_settings(parser: argparse.ArgumentParser, *, read: Container[str] = ALL, without: Container[str] = ()) -> None:
    """Add a flag for each setting, but for those `without` one. The help lists only the settings that the command has
    `read`; it accepts the others, so that it takes the command line of `ticketd serve`."""
    group = parser.add_argument_group(
        "settings",
        "Each is read from its flag, else from the environment variable in brackets, else from the file that this "
        "variable with _FILE names. A variable that is set and empty is an error."
        + ("" if read is ALL else " The other flags of `ticketd serve` are accepted and checked, but not used."),
    )
    for name, field in Settings.model_fields.items():
        if name in without:
            continue
        default = "" if field.default in (None, ()) else f"; default {field.default}"
        help_ = f"{field.description} [{PREFIX}{name.upper()}{default}]"
        group.add_argument(
            flag_of(name),
            dest=name,
            metavar="FILE" if name in SECRETS else "VALUE",
            help=help_ if name in read else argparse.SUPPRESS,
        )
        if name in SECRETS:
            bare = flag_of(name).removesuffix("-file")
            group.add_argument(bare, action=_NoSuchFlag, nargs="?", help=argparse.SUPPRESS)


def flag_of(name: str) -> str:
    """The flag of a setting. For a secret it names a file."""
    return "--" + name.replace("_", "-") + ("-file" if name in SECRETS else "")


def flags_in(arguments: argparse.Namespace) -> dict[str, Flag]:
    """The settings that a command line gives, by their names."""
    return {
        name: Flag(flag=flag_of(name), value=value)
        for name in Settings.model_fields
        if (value := getattr(arguments, name, None)) is not None
    }


class _NoSuchFlag(argparse.Action):
    """A flag that would hold a secret. It says what there is instead, and does not repeat the value."""

    def __call__(self, *_: object) -> None:
        (flag,) = self.option_strings
        variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        raise SettingsError(
            f"{flag}: there is no such flag, because other users of this machine can read a command line; "
            f"use {flag}-file FILE, {variable} or {variable}_FILE"
        )
