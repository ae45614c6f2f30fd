"""The options that several commands have."""

from typing import Annotated

import typer

from app.kinds.table import KINDS

Kind = Annotated[str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}.")]
Bits = Annotated[int | None, typer.Option(metavar="N", help="ticket: 32, 53 or 64; without it, 64.")]
Epoch = Annotated[int | None, typer.Option(metavar="MS", help="Where the ids' time begins, in ms since 1970.")]
Shards = Annotated[int | None, typer.Option(metavar="N", help="instagram, instagram32: how many shards.")]
RandomBits = Annotated[int | None, typer.Option(metavar="N", help="simpleflake: how many random bits.")]
