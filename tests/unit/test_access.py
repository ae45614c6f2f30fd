"""Tokens: the rights that they give, and new ones without a restart."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from app.access import LOOK_SECONDS, Access, Right, TokenFiles
from app.errors import Forbidden, Unauthenticated
from app.settings import load

USER, ADMIN, OLD, NEW = "the-token-of-a-user", "the-token-of-an-admin", "the-token-until-today", "the-token-from-now-on"


def may(access: Access, token: str | None) -> str:
    """Return the initials of the rights that this token has."""
    rights = ""
    for right in Right:
        with contextlib.suppress(Unauthenticated, Forbidden):
            access.check(token, right)
            rights += right[0]
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


def test_tokens_are_any_utf_8_and_bytes_that_are_none_are_not_known() -> None:
    access = Access(["tökén-票"])
    assert may(access, "tökén-票".encode().decode("utf-8", "surrogateescape")) == "trc"
    for other in ("tökén-票".encode("latin-1", "ignore"), b"\xff\xfe"):
        assert may(access, other.decode("utf-8", "surrogateescape")) == ""
    assert may(access, "\ud800") == ""


@pytest.mark.looptime
async def test_a_file_that_changes_is_read_and_one_that_cannot_be_used_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file, other, access = tmp_path / "tokens", tmp_path / "other", Access()
    file.write_text(f"{OLD}\n")
    settings = load({"TICKETS_TOKENS_FILE": str(file), "TICKETS_ADMIN_TOKENS": ADMIN}, {})
    file.write_text(f"{OLD} {NEW}")  # between the settings and the first look
    files = TokenFiles(settings, access)
    watch = asyncio.create_task(files.watch())
    await asyncio.sleep(LOOK_SECONDS / 2)
    assert may(access, OLD) == may(access, NEW) == "tr"

    other.write_text(NEW)
    other.rename(file)
    before = access.generation
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert (may(access, OLD), may(access, NEW), may(access, ADMIN)) == ("", "tr", "trc")
    assert access.generation == before + 1

    for damage in (b" \n", b"\xff"):
        file.write_bytes(damage)
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert (may(access, NEW), may(access, None)) == ("tr", "")
    assert sum(each.startswith("the tokens stay as they were: TICKETS_TOKENS_FILE") for each in caplog.messages) == 2
    other.write_text(f"short {OLD}")
    file.unlink()
    file.symlink_to(other)  # so Kubernetes changes the file of a Secret
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert (may(access, OLD), may(access, NEW)) == ("tr", "")
    assert "TICKETS_TOKENS has 1 tokens of fewer than 16 characters" in caplog.messages
    files.read_again()
    assert caplog.messages[-3::2] == ["read the tokens again: 2 tokens, 1 admin tokens"] * 2
    assert not any(word in caplog.text + repr(vars(access)) for word in (" short ", OLD, NEW, ADMIN))
    watch.cancel()
