"""How a note stands in Redis: a line each for `high`, `issued` and `sure`, a line with `=` and the tenure, or with `-`
where there is none, and then the text."""

from app.databases.session import Note


def pack(note: Note | None) -> str:
    """Return a note as it is kept; empty for none."""
    if note is None:
        return ""
    tenure = "-" if note.tenure is None else f"={note.tenure}"
    return f"{note.high}\n{note.issued}\n{note.sure:d}\n{tenure}\n{note.text}"


def unpack(kept: str) -> Note | None:
    """Read a note; None for nothing. Raises ValueError where it is damaged."""
    if not kept:
        return None
    high, issued, sure, tenure, text = kept.split("\n", 4)
    return Note(int(high), int(issued), tenure[1:] if tenure.startswith("=") else None, sure == "1", text)
