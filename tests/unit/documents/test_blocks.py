"""The part of a page between two comments."""

from pathlib import Path

import pytest

from docs.generator.blocks import NoBlock, replace_in, replaced, table

PAGE = "before\n<!-- figures:begin -->\n\nold\n\n<!-- figures:end -->\nafter\n"


def test_the_block_is_replaced_and_all_else_stays() -> None:
    expected = "before\n<!-- figures:begin -->\n\nnew\nlines\n\n<!-- figures:end -->\nafter\n"
    assert replaced(PAGE, "figures", "\nnew\nlines\n") == expected


def test_the_same_content_changes_nothing() -> None:
    assert replaced(PAGE, "figures", "old") == PAGE


@pytest.mark.parametrize(
    "page",
    [
        "no block",
        PAGE.replace("figures", "others"),
        PAGE + PAGE,
        "<!-- figures:end -->\n<!-- figures:begin -->\n",
    ],
)
def test_a_page_without_one_such_block_is_an_error_and_stays_as_it_is(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    with pytest.raises(NoBlock, match=r"page\.md: the page needs <!-- figures:begin -->"):
        replace_in(path, "figures", "new")
    assert path.read_text(encoding="utf-8") == page


def test_a_table_has_a_rule_that_aligns_its_columns() -> None:
    assert table(["case", "median"], [["one", "1"]], right=(1,)) == [
        "| case | median |",
        "| --- | ---: |",
        "| one | 1 |",
    ]
