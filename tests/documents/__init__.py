"""README and docs/: every command in them runs, every link leads somewhere, and what they list is what there is.

pages          the pages, their fenced blocks, headings and links
test_commands  each block with a command is run by a test, or says why not
test_consoles  the blocks with prompts, typed into a shell beside a real server, and held against what they show
test_mysql     the steps of README on two databases
test_python    the blocks in Python
test_links     every link and every anchor in the repository
test_site      mkdocs.yml names every page
test_facts     what the pages list: settings, alerts, metrics, bits
"""
