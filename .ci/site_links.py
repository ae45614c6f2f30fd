"""A hook of MkDocs: a link from docs/ to a file outside of it becomes the file's path.

On a code host such a link opens the file. The site has no place for the file, and `mkdocs build --strict` refuses a
link that leads nowhere.
"""

import posixpath
import re

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown, page, **_):
    """The page's text with the paths of files outside of docs/ in place of links to them."""

    def without_link(found):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}`)"

    return _LINK.sub(without_link, markdown)
