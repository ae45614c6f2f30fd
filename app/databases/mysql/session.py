"""The session of MySQL and MariaDB, see `app.databases.session`."""

from collections.abc import Mapping, Sequence

from app.databases.address import Address
from app.databases.examination import OLD_KINDS
from app.databases.mysql import draws, facts, notebook, sql
from app.databases.mysql.counters import Standing, read_counters, standings_of
from app.databases.mysql.errors import DENIED, StatementFailed, sequence_error
from app.databases.mysql.login import Line, Result, log_in
from app.databases.mysql.tables import BITS_53, COLUMN_ENDS
from app.databases.mysql.url import MySQLAddress
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.errors import DatabaseError, DatabaseRefused, SequenceError, SequenceExhausted, SequenceUnusable

_COLUMNS = {32: "INT UNSIGNED", 53: "BIGINT UNSIGNED", 64: "BIGINT UNSIGNED"}


async def connect(address: Address, residue: Residue | None, seconds: float) -> "MySQLSession":
    """See `app.databases.session.Connect`. It has no deadline: the caller cancels it."""
    assert isinstance(address, MySQLAddress)
    line = await log_in(address, seconds)
    try:
        return MySQLSession(line, residue, await prepare(line, address.database, residue, seconds))
    except BaseException:
        line.abort()
        raise


async def prepare(line: Line, database: str, residue: Residue | None, seconds: float, *, makes: bool = True) -> Facts:
    """Prepare the session, make the own tables if `makes`, and return the facts.

    Raises DatabaseRefused if any is wrong.
    """
    facts.check(line.version, (), (), None)
    packet = [
        *sql.prepare(residue, seconds, database, mariadb=line.mariadb),
        *sql.read_back(mariadb=line.mariadb),
        facts.VARIABLES,
        sql.OWN_TABLES,
    ]
    *steps, variables, own = (result.rows for result in (await line.run(packet))[-4:])
    if [row for rows in steps for row in rows] != [sql.steps_of(residue), sql.PROBE]:
        raise DatabaseRefused(
            f"has the increments and offsets {steps} in a session that has others: something between the ticket server "
            "and it shares sessions, resets them, or removes hints from statements"
        )
    facts.check(line.version, variables, own, residue)
    try:
        if makes and (len(own) < 2 or not (await line.run([sql.RING]))[0].rows):
            await line.run(sql.make_own_tables(new_word()))
    except StatementFailed as error:
        if error.number not in DENIED:
            raise
        raise DatabaseRefused(f"lacks the ticket server's own tables, and it {error}") from error
    if makes and not notebook.ring_of((await line.run([sql.RING]))[0].rows).stamp:
        await _refuse_old_kinds(line)
    clock, made = await line.run([sql.clock(mariadb=line.mariadb), sql.OWN_TABLES])
    return facts.facts_of(clock.rows, variables, made.rows)


async def _refuse_old_kinds(line: Line) -> None:
    """Raise DatabaseRefused where a release before 1.0 has made sequences of other kinds than `ticket`."""
    for (table,) in (await line.run([sql.OLD_TABLES]))[0].rows:
        if (await line.run([sql.OLD_KINDS[str(table)]]))[0].rows:
            raise DatabaseRefused(OLD_KINDS)


class MySQLSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    def __init__(self, line: Line, residue: Residue | None, found: Facts) -> None:
        self.residue = residue
        self.facts = found
        self.life = ""
        self._line = line
        self._seen: dict[str, int] = {}
        """For each sequence, by its name as it was made, an id that its counter has passed."""

    def abort(self) -> None:
        self._line.abort()

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        try:
            for want in wanted:
                if want.count > 1:
                    await self._look_first(want)
            forms = [self._form(want) for want in wanted]
            outcomes = iter(await self._each([form.statements for form in forms if form is not None]))
            return [SequenceExhausted() if form is None else await self._result(form, next(outcomes)) for form in forms]
        except DatabaseError:
            self._line.abort()
            raise

    async def _look_first(self, want: Want) -> None:
        """Look where the counter stands, if a draw of several ids might pass the end."""
        assert self.residue is not None, "this session draws nothing"
        if draws.has_to_look(want, self.residue, max(self._seen.get(want.sequence, 0), want.last)):
            standing = (await standings_of(self._line, [want.sequence])).get(want.sequence)
            if isinstance(standing, Standing):  # else the draw itself says what is wrong
                self._seen[want.sequence] = standing.position

    def _form(self, want: Want) -> draws.Form | None:
        """Return how to draw a want; None if its ids would pass the ceiling."""
        assert self.residue is not None, "this session draws nothing"
        return draws.form_of(want, self.residue, self._seen.get(want.sequence, 0), mariadb=self._line.mariadb)

    async def _result(self, form: draws.Form, outcome: Sequence[Result] | SequenceError) -> Drawn | DatabaseError:
        """Return the result of a draw. Where its last id may be a column's end, draw once more."""
        if isinstance(outcome, SequenceError):
            return outcome
        assert self.residue is not None
        result = draws.drawn(form, self.residue, outcome)
        name, last = form.want.sequence, outcome[-1].insert_id + form.further
        repeated, self._seen[name] = self._seen.get(name) == last, last
        if last in COLUMN_ENDS and isinstance(result, Drawn) and not self._line.mariadb:
            return SequenceExhausted() if repeated else (await self.draw([form.want]))[0]
        return result

    async def _each(self, groups: Sequence[Sequence[str]]) -> list[list[Result] | SequenceError]:
        """Run groups of statements in one packet, each statement committed by itself.

        Returns for each group the results of its statements, or what ended it. A statement that fails ends the packet
        as well, so the groups behind it are sent again.
        """
        outcomes: list[list[Result] | SequenceError] = []
        while rest := groups[len(outcomes) :]:
            packet = ";".join([statement for group in rest for statement in group])
            try:
                for group in rest:
                    results = []
                    for _ in group:
                        results.append(await self._line.step(packet))
                        packet = ""
                    outcomes.append(results)
            except StatementFailed as error:
                if (wrong := sequence_error(error.number)) is None:
                    raise
                outcomes.append(wrong)
        return outcomes

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        return await read_counters(self._line, names)

    async def make(self, name: str, bits: int, above: int) -> None:
        named = f"TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) = {sql.literal(name.lower())}"
        if (await self._line.run([f"SELECT 1 FROM information_schema.TABLES WHERE {named}"]))[0].rows:  # noqa: S608
            return
        comment = f" COMMENT '{BITS_53}'" if bits == 53 else ""
        statement = (
            f"CREATE TABLE IF NOT EXISTS {sql.quoted(name)} (id {_COLUMNS[bits]} NOT NULL AUTO_INCREMENT{comment}, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', PRIMARY KEY (stub), KEY id (id)) "
            f"ENGINE=InnoDB AUTO_INCREMENT={above + 1}"
        )
        try:
            await self._line.run([statement])
        except StatementFailed as error:
            if error.number not in DENIED:
                raise
            raise SequenceUnusable("its user may not make a table: GRANT CREATE on its database") from error

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        raised = {name: floor for name, floor in floors.items() if floor > 0}
        outcomes = await self._each([(draws.raising(name, floor),) for name, floor in raised.items()])
        found = dict.fromkeys(floors) | {
            name: outcome if isinstance(outcome, SequenceError) else None
            for name, outcome in zip(raised, outcomes, strict=True)
        }
        # What the column of a sequence cannot hold exhausts it, as the largest id of the column does.
        for name, floor in raised.items():
            ends = [end for end in COLUMN_ENDS if end < floor]
            if isinstance(found[name], SequenceExhausted) and ends:
                found |= await self.raise_above({name: max(ends)})
        return found

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        machine = self.facts.machine
        chosen = (
            f"book = '{Book.HEARTBEATS}' OR (book = '{Book.LIVES}' AND name = {sql.literal(machine)}) "
            f"OR (book = '{Book.COUNTS}' AND name = 'floors')"
        )
        _, clock, variables, own, ring, notes = await self._line.run(
            [
                notebook.of_beat(server, beat),
                sql.clock(mariadb=self._line.mariadb),
                facts.VARIABLES,
                sql.OWN_TABLES,
                sql.RING,
                f"SELECT book, {notebook.COLUMNS} FROM _ticket_notes WHERE {chosen}",  # noqa: S608
            ]
        )
        facts.check(self._line.version, variables.rows, own.rows, self.residue)
        rows = {(book, name): notebook.note_of(rest) for book, name, *rest in notes.rows}
        return Look(
            facts.facts_of(clock.rows, variables.rows, own.rows),
            notebook.ring_of(ring.rows),
            rows.get((Book.LIVES, machine)),
            {name: note for (book, name), note in rows.items() if book == Book.HEARTBEATS},
            rows.get((Book.COUNTS, "floors"), Note()).high,
        )

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        chosen = f"name IN ({', '.join(map(sql.literal, ['', *names]))})"
        return dict(await self._notes(book, chosen))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self._notes(book, f"name > {sql.literal(after)} ORDER BY name LIMIT {count}")

    async def _notes(self, book: Book, chosen: str) -> list[tuple[str, Note]]:
        question = f"SELECT {notebook.COLUMNS} FROM _ticket_notes WHERE book = '{book}' AND {chosen}"  # noqa: S608
        (found,) = await self._line.run([question])
        return [(name, notebook.note_of(rest)) for name, *rest in found.rows]

    async def read_ring(self) -> RingRow:
        (found,) = await self._line.run([sql.RING])
        return notebook.ring_of(found.rows)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return (await notebook.commit(self._line, [((), notebook.of_ring(old, new))]))[0]

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        statements = (((mark.name,), notebook.of_mark(mark, stamp, mariadb=self._line.mariadb)) for mark in marks)
        done = await notebook.commit(self._line, statements)
        if all(done):
            return [Marked.DONE] * len(done)
        # A stamp never comes back. So if it is still this one, it was this one when the marks were refused.
        refused = Marked.TENURE if (await self.read_ring()).stamp == stamp else Marked.RING
        return [Marked.DONE if each else refused for each in done]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        statements = ((each[:2], notebook.of_write(each, stamp, mariadb=self._line.mariadb)) for each in writes)
        return await notebook.commit(self._line, statements)
