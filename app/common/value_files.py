"""Values that are given in a file: passwords, tokens, and any other setting."""

from pathlib import Path

from app.common.errors import SettingsError


def read_value(path: str, source: str) -> str:
    """The file's text without the line ends after it.

    Raises SettingsError, which names the `source` of the path: a variable or a flag.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SettingsError(
            f"{source}: the file {path} cannot be read ({reason}); expected a file with the value"
        ) from error
    if not text.strip():
        raise SettingsError(f"{source}: the file {path} is empty; expected a file with the value")
    return text
