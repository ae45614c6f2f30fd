"""The command behind `make documents`: writes every generated page, and names those that were out of date."""

import sys

from documents.blocks import write
from documents.generated import ROOT, pages


def main() -> int:
    """Returns the exit status, 0."""
    for path, text in pages().items():
        whole = ROOT / path
        if not whole.exists() or whole.read_text(encoding="utf-8") != text:
            write(whole, text)
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
