"""The pages of docs/ that programs write, so that no figure and no default in them is typed by hand.

    blocks         the part of a page between two comments, which a program writes
    settings_page  docs/settings.md, from the settings and the commands' help
    generated      every generated page: its path, and the text that it should have
    pictures       docs/pictures/, from a running server in a real Chromium

`make documents` writes the pages anew from what the repository holds: the settings, and the results that measuring
programs have left. These programs write their own pages when they end, by the same functions: `make bench`
(docs/performance.md, the figures in README.md), `python -m bench.capacity` (docs/capacity.md) and `make long`
(docs/evidence.md). A test compares every page with what `make documents` would write.
"""
