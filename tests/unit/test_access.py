"""Tokens: the rights that they give, and new ones without a restart."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from app.access import Access, Right
from app.errors import Forbidden, Unauthenticated
from app.settings import load
from app.tokens import LOOK_SECONDS, TokenFiles

USER, ADMIN, OLD, NEW = "the-token-of-a-user", "the-token-of-an-admin", "the-token-until-today", "the-token-from-now-on"


def may(access: Access, token: str | None) -> str:
    """Return the initials of the rights that this token has."""
    rights = ""
    for right in Right:
        try:
            access.check(token, right)
            rights += right[0]
        except (Unauthenticated, Forbidden):
            pass
    return rights


@pytest.mark.parametrize(
    ("users", "admins", "nobody", "user", "admin"),
    [
        ((), (), "trc", "trc", "trc"),
        ((USER,), (), "", "trc", ""),
        ((USER,), (ADMIN,), "", "tr", "trc"),
        ((), (ADMIN,), "tr", "tr", "trc"),
    ],
)
def test_what_each_token_may_do(users: tuple[str], admins: tuple[str], nobody: str, user: str, admin: str) -> None:
    access = Access(users, admins)
    assert (may(access, None), may(access, USER), may(access, ADMIN)) == (nobody, user, admin)
    assert may(access, "") == may(access, USER + "x") == may(access, USER.upper()) == nobody
    assert [access.needs_token(right) for right in Right] == [right[0] not in nobody for right in Right]


def test_a_token_that_may_not_is_told_apart_from_one_that_is_not_known() -> None:
    access = Access([USER], [ADMIN])
    with pytest.raises(Forbidden):
        access.check(USER, Right.CHANGES)
    with pytest.raises(Unauthenticated):
        access.check("other", Right.CHANGES)
    with pytest.raises(Unauthenticated):
        access.check(None, Right.CHANGES)


def test_tokens_are_any_utf_8_and_bytes_that_are_none_are_not_known() -> None:
    access = Access(["tökén-票"])
    assert may(access, "tökén-票".encode().decode("utf-8", "surrogateescape")) == "trc"
    for other in ("tökén-票".encode("latin-1", "ignore"), b"\xff\xfe"):
        assert may(access, other.decode("utf-8", "surrogateescape")) == ""
    assert may(access, "\ud800") == ""


def test_the_generation_rises_with_each_replacement_and_nothing_shows_a_token() -> None:
    access = Access([USER])
    before = access.generation
    access.replace([ADMIN], [])
    assert access.generation > before
    assert (may(access, USER), may(access, ADMIN)) == ("", "trc")
    assert ADMIN not in repr(access) + repr(vars(access))


# --- the files of the tokens ------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    return file


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def files(file: Path, access: Access) -> TokenFiles:
    settings = load({"TICKETS_TOKENS_FILE": str(file), "TICKETS_ADMIN_TOKENS": ADMIN}, {})
    return TokenFiles(settings, access)


def rewritten(file: Path, text: str) -> None:
    file.write_text(text)


def replaced(file: Path, text: str) -> None:
    other = file.with_name("other")
    other.write_text(text)
    other.rename(file)


def linked(file: Path, text: str) -> None:
    """Change the file as Kubernetes changes that of a Secret."""
    target = file.with_name("..data")
    target.unlink(missing_ok=True)
    target.write_text(text)
    file.unlink()
    file.symlink_to(target)


@pytest.mark.looptime
@pytest.mark.parametrize("change", [rewritten, replaced, linked])
async def test_a_file_that_changes_is_read(
    file: Path, files: TokenFiles, access: Access, change: Callable[[Path, str], None]
) -> None:
    watch = asyncio.create_task(files.watch())
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert may(access, OLD) == "tr"
    change(file, f"{OLD} {NEW}")
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert may(access, OLD) == may(access, NEW) == "tr"
    change(file, NEW)
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert (may(access, OLD), may(access, NEW), may(access, ADMIN)) == ("", "tr", "trc")
    watch.cancel()


@pytest.mark.looptime
async def test_a_change_since_the_settings_were_read_is_not_missed(file: Path, access: Access) -> None:
    settings = load({"TICKETS_TOKENS_FILE": str(file)}, {})
    rewritten(file, NEW)
    watch = asyncio.create_task(TokenFiles(settings, access).watch())
    await asyncio.sleep(LOOK_SECONDS / 2)
    assert may(access, NEW) == "trc"
    watch.cancel()


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda file: file.write_text(" \n"), lambda file: file.write_bytes(b"\xff")]
)
def test_a_file_that_cannot_be_used_changes_nothing(
    file: Path,
    files: TokenFiles,
    access: Access,
    damage: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(file)
    files.read_again()
    assert (may(access, OLD), may(access, None)) == ("tr", "")
    assert caplog.messages[-1].startswith("the tokens stay as they were: TICKETS_TOKENS_FILE: the file ")
    file.write_text(NEW)
    files.read_again()
    assert may(access, NEW) == "tr"


def test_short_tokens_are_warned_of_and_no_token_is_logged(
    file: Path, files: TokenFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file.write_text(f"short {NEW}")
    files.read_again()
    assert "TICKETS_TOKENS has 1 tokens of fewer than 16 characters" in caplog.messages
    assert "read the tokens again: 2 tokens, 1 admin tokens" in caplog.messages
    assert not any(word in caplog.text for word in (" short ", NEW, ADMIN))
