"""The command line's own errors."""

import pytest

from app.commands.cli import build_parser


@pytest.mark.parametrize("line", [
    ["serve", "mysql://tickets:s3cret@db1/tickets"],
    ["mysql://tickets:s3cret@db1/tickets"],
    ["serve", "--database=mysql://tickets:s3cret@db1/tickets"],
    ["grow", "--increment", "redis://:s3cret@cache:6379"],
    ["doctor", "mysql://tickets:s3cr@et/of#db@db1/tickets"],
])  # fmt: skip
def test_an_argument_that_cannot_be_used_is_repeated_without_its_password(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(line)
    says = capsys.readouterr().err
    assert ended.value.code == 2
    assert "s3cr" not in says
    assert line[-1].rpartition("@")[2] in says
