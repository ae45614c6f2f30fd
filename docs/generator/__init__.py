"""The programs that write the generated pages of docs/, so that nobody types a figure or a default into them by hand.

    blocks         the part of a page between two comments, which a program writes
    settings_page  docs/settings.md, from the settings and the commands' help
    generated      every generated page: its path, and the text that it should have
    pictures       docs/pictures/, from a running server in a real Chromium

`make documents` (`python -m docs.generator`) writes the pages again from the settings and from the results that the
measuring programs have left in the repository. These programs write their own pages when they end, by the same
functions: `make bench` (docs/performance.md, the figures in README.md), `python -m bench.capacity` (docs/capacity.md)
and `make long` (docs/evidence.md). A test compares every page with the text that `make documents` would write.

docs/ itself is no package and holds pages only. mkdocs.yml keeps this folder out of the site, and pyproject.toml
installs app/ alone.
"""
