"""The command behind `make documents`: write every generated page again, and print the pages that were out of date."""

import sys

from docs.generator.blocks import write
from docs.generator.generated import ROOT, pages


def main() -> int:
    """Write the pages. Returns the exit status, 0."""
    for path, text in pages().items():
        whole = ROOT / path
        if not whole.exists() or whole.read_text(encoding="utf-8") != text:
            write(whole, text)
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
