"""Commands in Redis' protocol, from a grammar that leans towards what is long, deep and many."""

from random import Random

from tests.long.costly.case import TOKEN

COMMANDS = (
    b"INCR", b"INCRBY", b"TICKET.TAKE", b"TICKET.BLOCK", b"EXISTS", b"MULTI", b"EXEC", b"DISCARD", b"PING", b"ECHO",
    b"SELECT", b"HELLO", b"AUTH", b"CLIENT", b"CONFIG", b"COMMAND", b"INFO", b"QUIT", b"RESET", b"GET", b"x" * 500,
)  # fmt: skip
WORDS = (
    b"photos", b"nobody", b"s7", b"1", b"1000", b"10000", b"COUNT", b"KEY", b"GET", b"SETNAME", b"INFO", b"LIST", b"3",
    b"", b"x" * 60, b"x" * 3_000, b"*" * 60, b"[a-z]*" * 10, b"\x00\xff" * 20, b"\\x41" * 15, b"9" * 60, TOKEN,
)  # fmt: skip


def array(*words: bytes) -> bytes:
    """A command as clients send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def inline(*words: bytes) -> bytes:
    """A command as a person types it."""
    return b" ".join(words) + b"\r\n"


def request(chance: Random) -> bytes:
    """One command, or several that belong together, or none."""
    return chance.choice([_command, _command, _many_names, _transaction, _inline, _globs, _login, _odd])(chance)


def opening(chance: Random) -> bytes:
    """What a connection may begin with: no login, a right one, half of one, a wrong one."""
    right, wrong = array(b"AUTH", TOKEN), array(b"AUTH", b"wrong")
    hello = array(b"HELLO", b"3", b"AUTH", b"default", TOKEN)
    return chance.choice([b"", b"", right, right, hello, wrong, right[:20], array(b"HELLO", b"3"), array(b"MULTI")])


def _command(chance: Random) -> bytes:
    words = [chance.choice(WORDS) for _ in range(chance.choice([0, 1, 1, 2, 3, 8]))]
    return array(chance.choice(COMMANDS), *words)


def _many_names(chance: Random) -> bytes:
    size = chance.choice([10, 250, 1_000, 4_000])
    name = chance.choice([b"EXISTS", b"PING", b"COMMAND", b"CLIENT", b"CONFIG", b"TICKET.TAKE", b"AUTH", b"HELLO"])
    first = chance.choice([[], [b"GET"], [b"INFO"], [b"photos"]])
    start = chance.randrange(10**9)
    return array(name, *first, *(b"n%d" % (start + n) for n in range(size)))


def _transaction(chance: Random) -> bytes:
    inner = b"".join(_command(chance) for _ in range(chance.choice([1, 30, 200])))
    again = array(b"MULTI") * chance.choice([0, 1, 500])
    return array(b"MULTI") + again + inner + chance.choice([array(b"EXEC"), array(b"DISCARD"), b""])


def _inline(chance: Random) -> bytes:
    word = chance.choice([b'"\\x41"', b"a", b"''", b'"a\\"b"', b"INCR photos", b"\\x41"])
    return inline(chance.choice(COMMANDS), *[word] * chance.choice([1, 20, 1_000, 10_000]))


def _globs(chance: Random) -> bytes:
    start = chance.randrange(10**9)
    glob = chance.choice([b"[a-z]*%d", b"*?*?*?%d", b"[[[[[%d", b"%d*" + b"a*" * 20])
    return b"".join(array(b"CONFIG", b"GET", glob % (start + n)) for n in range(chance.choice([1, 100, 500])))


def _login(chance: Random) -> bytes:
    return array(b"HELLO", b"3", *[b"SETNAME", b"x"] * chance.choice([1, 100]), b"AUTH", b"x", chance.choice(WORDS))


def _odd(chance: Random) -> bytes:
    return chance.choice([
        b"\r\n" * 1_000, b"\n" * 1_000, b"*0\r\n" * 300, b"*-1\r\n" * 200, b"*1\r\n$-1\r\n", b"*1000000\r\n$1\r\nx\r\n",
        b"*2\r\n$4\r\nINCR\r\n$6\r\nphot", b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 60_000 + b"\r\n", b"x" * 65_000,
        b"INCR photos\r\n" * 50, array(b"INCR", b"photos"), array(b"INCR", b"photos") * 16, b" \r\n" * 300,
        array(b"TICKET.TAKE", b"photos", b"COUNT", b"1000"), array(b"TICKET.BLOCK", b"photos", b"10000"),
        array(b"INCR", b"photos") + array(b"TICKET.TAKE", b"photos") * 3, array(b"INFO"), array(b"COMMAND"),
        b"*1024\r\n" + b"$0\r\n\r\n" * 1_024, b"POST / HTTP/1.1\r\n", array(b"EXISTS", b"photos"),
    ])  # fmt: skip
