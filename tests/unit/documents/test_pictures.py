"""The pictures in docs/pictures/ are of this release, and the documents show no others."""

import json
import re
from pathlib import Path

import pytest

from app.common.version import VERSION
from docs.generator.generated import ROOT
from docs.generator.pictures import FOLDER, RECORD

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SHOWN = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.png)\)")


def test_they_are_of_this_release() -> None:
    record = json.loads((FOLDER / RECORD).read_text(encoding="utf-8"))
    assert record["version"] == VERSION, "run `make pictures`"
    assert "Chrom" in record["browser"]


def test_the_record_names_exactly_those_that_are_there() -> None:
    record = json.loads((FOLDER / RECORD).read_text(encoding="utf-8"))
    assert sorted(record["pictures"]) == sorted(path.name for path in FOLDER.glob("*.png"))
    for name in record["pictures"]:
        assert (FOLDER / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_show_pictures_that_are_there(document: Path) -> None:
    for target in SHOWN.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / target).resolve().parent == FOLDER, f"{target} is not made by `make pictures`"
        assert (document.parent / target).exists()
