"""Tokens are read again when their file changes, or on a signal; a file that cannot be used changes nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from app.common.value_files import WatchedFiles
from app.http.access import Access
from app.settings import Settings, load
from app.token_rotation import LOOK_SECONDS, TokenRotation
from tests.fakes.virtual_time import virtual_time

OLD, NEW = "the token until today", "the token from now on"


def is_known(access: Access, token: str) -> bool:
    return access.refusal_for_tickets(b"Bearer " + token.encode()) is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD.replace(' ', '-')}\n", encoding="utf-8")
    return file


@pytest.fixture
def access() -> Access:
    return Access((), ())


@pytest.fixture
def rotation(file: Path, access: Access) -> TokenRotation:
    def read() -> Settings:
        return load({"TICKETS_TOKENS_FILE": str(file)})

    files = WatchedFiles([str(file)])
    settings = read()
    access.replace(settings.tokens, settings.admin_tokens)
    return TokenRotation(access, read, files)


def rewritten(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def replaced(file: Path, text: str) -> None:
    other = file.with_name("other")
    other.write_text(text, encoding="utf-8")
    other.rename(file)


def linked(file: Path, text: str) -> None:
    """As Kubernetes does."""
    target = file.with_name("..data")
    target.write_text(text, encoding="utf-8")
    file.unlink()
    file.symlink_to(target)


@pytest.mark.parametrize("change", [rewritten, replaced, linked])
def test_a_file_that_changes_is_read(
    file: Path, access: Access, rotation: TokenRotation, change: Callable[[Path, str], None]
) -> None:
    old, new = OLD.replace(" ", "-"), NEW.replace(" ", "-")

    @virtual_time
    async def scenario() -> None:
        watch = asyncio.create_task(rotation.watch())
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert is_known(access, old)
        change(file, f"{old} {new}")
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert is_known(access, old)
        assert is_known(access, new)
        change(file, new)
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert not is_known(access, old)
        assert is_known(access, new)
        watch.cancel()

    scenario()


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda file: file.write_text(" \n"), lambda file: file.write_bytes(b"\xff")]
)
def test_a_file_that_cannot_be_used_changes_nothing(
    file: Path,
    access: Access,
    rotation: TokenRotation,
    damage: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(file)
    rotation.read_again()
    assert is_known(access, OLD.replace(" ", "-"))
    assert not access.tickets_are_free
    assert "the tokens stay as they were" in caplog.messages
    file.write_text(NEW.replace(" ", "-"), encoding="utf-8")
    rotation.read_again()
    assert is_known(access, NEW.replace(" ", "-"))


def test_no_token_is_logged(rotation: TokenRotation, caplog: pytest.LogCaptureFixture) -> None:
    rotation.read_again()
    told = [str(record.__dict__.get("fields")) + record.message for record in caplog.records]
    assert not any(OLD.replace(" ", "-") in line for line in told)


def test_short_tokens_are_warned_of(file: Path, rotation: TokenRotation, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text("short quite-long-enough-for-this", encoding="utf-8")
    rotation.read_again()
    assert [
        record.__dict__["fields"]["count"] for record in caplog.records if record.message == "tokens are short"
    ] == [1]
