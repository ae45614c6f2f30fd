"""uvicorn, as far as this server rests on it."""

import importlib
import logging

import pytest
import uvicorn

from app.common.errors import SettingsError
from app.http.uvicorn_adapter import UNDOCUMENTED, check_uvicorn


def test_this_uvicorn_has_all_that_is_used_and_the_look_at_it_changes_no_log() -> None:
    loggers = [logging.getLogger(name) for name in ("", "uvicorn", "uvicorn.error", "uvicorn.access")]
    before = [(logger.handlers.copy(), logger.level, logger.propagate) for logger in loggers]
    check_uvicorn()
    assert [(logger.handlers, logger.level, logger.propagate) for logger in loggers] == before


NAMES = [(place, name) for place, names in UNDOCUMENTED.items() for name in names]


@pytest.mark.parametrize(("place", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_name_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, place: str, name: str) -> None:
    module, _, class_ = place.partition(":")
    whole = getattr(importlib.import_module(module), class_)

    class Less(whole):  # type: ignore[misc,valid-type]
        """The class without one name."""

        def __init__(self, *args: object) -> None:
            if class_ != "HttpToolsProtocol":
                super().__init__(*args)

        def __getattribute__(self, asked: str) -> object:
            if asked == name:
                raise AttributeError(asked)
            return super().__getattribute__(asked)

    if class_ == "HttpToolsProtocol":
        kept = {key: value for key, value in vars(whole).items() if key != name}
        monkeypatch.setattr(f"{module}.{class_}", type(class_, (), kept))
    else:
        monkeypatch.setattr(f"{module}.{class_}", Less)
        monkeypatch.setattr(uvicorn, class_, Less, raising=False)
    with pytest.raises(SettingsError, match=rf"{class_}.* has no {name}\b"):
        check_uvicorn()


@pytest.mark.parametrize("place", UNDOCUMENTED)
def test_a_class_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.delattr(place.replace(":", "."))
    with pytest.raises(SettingsError, match=f"has no {place.replace(':', '.')}"):
        check_uvicorn()
