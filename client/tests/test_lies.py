"""A server that lies is refused by name, and another URL is asked."""

from __future__ import annotations

from typing import Any

import pytest

from lying_server import Answer, Changed, Honest, Says, Serve, problem
from ticketd_client import NoSuchSequence, NotAllowed, SequenceExhausted, Tickets, TicketsUnavailable

LIES: list[tuple[str, Answer, str]] = [
    ("step 0", Changed(step=0), "with a step of 0"),
    ("step below 0", Changed(step=-2), "with a step of -2"),
    ("a step in letters", Changed(step="2"), "with a step of '2'"),
    ("a step wider than an increment", Changed(step=65_536), "with a step of 65536"),
    ("no step", Changed(step=None), "with a step of None"),
    ("a step that is half", Changed(step=2.0), "with a step of 2.0"),
    ("another size", Changed(size=1), "gave a block of 1 where"),
    ("first and first_str", Changed(first_str="8"), "whose first_str '8'"),
    ("first is true", Changed(first=True, first_str="True"), "a block that begins with True"),
    ("first is 0", Changed(first=0, first_str="0"), "a block that begins with 0"),
    ("first is a half", Changed(first=7.5, first_str="7.5"), "a block that begins with 7.5"),
    ("beyond 63 bits", Changed(first=2**63 - 2, first_str=str(2**63 - 2)), "ids above 2^63 - 1"),
    ("of another sequence", Changed(sequence="photo"), "answered for the sequence 'photo'"),
    ("a list", lambda _: Says([1, 2]), "did not answer with a JSON object"),
    ("not JSON", lambda _: Says(b"{"), "did not answer with JSON"),
    ("deep JSON", lambda _: Says(b"[" * 900), "did not answer with JSON"),
    ("a number of 5,000 digits", lambda _: Says(b'{"first": %b}' % (b"9" * 900)), "answered for the sequence None"),
    ("a page", lambda _: Says(b"<html>", kind="text/html"), "did not answer with JSON but with 'text/html'"),
    ("a long body", lambda _: Says({"a": "x" * 70_000}), "gave an answer of 70009 bytes"),
    ("a cut body", lambda _: Says({}).as_bytes()[:-1] + b"", "no answer in"),
    ("no HTTP", lambda _: b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "did not answer in HTTP"),
    ("nothing", lambda _: None, "no answer (Remote end closed connection without response)"),
    ("a stranger's 404", lambda _: Says(b"", 404, "text/html"), "404: X"),
    ("a redirect", lambda _: Says(b"", 307, headers=("Location: http://127.0.0.1:1/",)), "307: X"),
    ("a 500", lambda _: problem(500, "a fault"), "500: a fault"),
]


@pytest.mark.parametrize(("lie", "says"), [each[1:] for each in LIES], ids=[each[0] for each in LIES])
def test_a_lie_is_refused_by_name_and_another_url_asked(serve: Serve, lie: Answer, says: str) -> None:
    liar, honest = serve(lie), serve(Honest(2))
    with Tickets([liar.url, honest.url], timeout=2) as tickets:
        assert tickets.take("photos") == 2
    assert liar.requests
    with Tickets(liar.url, timeout=0.4) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.take("photos")
    assert f"{liar.url}: " in str(caught.value)
    assert says in str(caught.value)
    assert [answer.url for answer in caught.value.answers] == [liar.url]


SINGLE_LIES: list[tuple[str, dict[str, Any], str]] = [
    ("id and id_str", {"id_str": "8"}, "as a string, '8'"),
    ("no id_str", {"id_str": None}, "as a string, None"),
    ("below 0", {"id": -1, "id_str": "-1"}, "gave -1 for a ticket"),
    ("beyond 63 bits", {"id": 2**63, "id_str": str(2**63)}, "for a ticket"),
    ("a short string", {"id": "7", "id_str": "7"}, "gave '7' for a ticket"),
    ("true", {"id": True, "id_str": "True"}, "gave True for a ticket"),
    ("of another sequence", {"sequence": "x"}, "answered for the sequence 'x'"),
]


@pytest.mark.parametrize(("changes", "says"), [each[1:] for each in SINGLE_LIES], ids=[each[0] for each in SINGLE_LIES])
def test_a_single_ticket_that_cannot_be(serve: Serve, changes: dict[str, Any], says: str) -> None:
    liar = serve(Changed(**changes))
    with Tickets(liar.url, prefetch=0, timeout=0.4) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.take("photos")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ids": [1, 1, 3], "ids_str": ["1", "1", "3"]}, "gave a ticket twice in one answer"),
        ({"ids": [1, 3], "ids_str": ["1", "3"]}, "did not answer with 3 tickets"),
        ({"count": 2}, "did not answer with 3 tickets"),
        ({"ids": "135"}, "did not answer with 3 tickets"),
    ],
)
def test_a_list_that_cannot_be(serve: Serve, changes: dict[str, Any], says: str) -> None:
    liar = serve(Changed(**changes))
    with Tickets(liar.url, prefetch=0, timeout=0.4) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.take_many("photos", 3)
    assert says in str(caught.value)


@pytest.mark.parametrize("prefetch", [0, 100])
def test_databases_that_fold_names_answer_in_lower_case(serve: Serve, prefetch: int) -> None:
    with Tickets(serve(Changed(sequence="photos")).url, prefetch=prefetch, timeout=2) as tickets:
        assert tickets.take("Photos") == 1
        assert len(tickets.take_many("PHOTOS", 3)) == 3
    other = serve(Changed(sequence="Photos"))
    refused = pytest.raises(TicketsUnavailable, match="answered for the sequence 'Photos'")
    with Tickets(other.url, prefetch=prefetch, timeout=0.4) as tickets, refused:
        tickets.take("photos")


def test_a_block_that_was_given_before(serve: Serve) -> None:
    again = Honest(101)

    def answer(path: str) -> Any:
        if again.calls:
            again.__init__(101)  # type: ignore[misc]  # as a server that was restored from a backup
        return again(path)

    liar = serve(answer)
    with Tickets(liar.url, prefetch=10, timeout=0.4) as tickets:
        first = [tickets.take("photos") for _ in range(3)]
        assert first == [101, 103, 105]
        with pytest.raises(TicketsUnavailable) as caught:
            tickets.take_many("photos", 1_000)
    assert "gave the block 101 to " in str(caught.value)
    assert "have been given before" in str(caught.value)


def test_a_block_that_overlaps_what_another_server_gave(serve: Serve) -> None:
    one, other = serve(Honest(1)), serve(Honest(3))
    with Tickets([one.url, other.url], prefetch=0, timeout=1) as tickets:
        assert len(tickets.take_many("photos", 2_000)) == 2_000
        got = tickets.take_many("photos", 2_000)  # the other's first block overlaps: its own are asked again
    assert len(set(got)) == 2_000
    assert min(got) > 2 * 1_999


def test_a_ticket_that_was_given_before(serve: Serve) -> None:
    liar = serve(lambda _: Says({"sequence": "photos", "id": 7, "id_str": "7"}))
    with Tickets(liar.url, prefetch=0, timeout=0.4) as tickets:
        assert tickets.take("photos") == 7
        with pytest.raises(TicketsUnavailable, match="gave the ticket 7, which has been given before"):
            tickets.take("photos")


def test_another_step_than_before_is_refused(serve: Serve) -> None:
    liar = Honest(1, step=2)
    server = serve(liar)
    with Tickets(server.url, prefetch=0, timeout=0.4) as tickets:
        tickets.take_many("photos", 1_001)
        serve_steps_of_one = Honest(100_000, step=1)
        server.answer = serve_steps_of_one
        with pytest.raises(TicketsUnavailable, match="a step of 1 where it has been 2"):
            tickets.take_many("photos", 1_001)


def test_a_step_that_two_servers_give_is_a_ring_that_has_grown(serve: Serve) -> None:
    one, other = serve(Honest(1, step=2)), serve(Honest(100_001, step=2))
    with Tickets([one.url, other.url], prefetch=0) as tickets:
        tickets.take_many("photos", 1_001)
        one.answer, other.answer = Honest(1_000_001, step=4), Honest(2_000_003, step=4)
        assert len(tickets.take_many("photos", 1_001)) == 1_001


def test_what_is_said_of_every_server_is_believed(serve: Serve) -> None:
    cases = {
        404: NoSuchSequence,
        410: SequenceExhausted,
        401: NotAllowed,
        403: NotAllowed,
    }
    for status, kind in cases.items():
        first, second = serve(lambda _, status=status: problem(status, "so it is")), serve(Honest())  # type: ignore[misc]
        with Tickets([first.url, second.url]) as tickets, pytest.raises(kind) as caught:
            tickets.take("photos")
        assert str(caught.value) == f"{first.url}: {status}: so it is"


@pytest.mark.parametrize("prefetch", [10, 0])
@pytest.mark.parametrize(
    "changes", [{}, {"sequence": "ours"}, {"first": "ours", "id": "ours"}, {"step": "x" * 45 + "ours"}]
)
def test_a_token_that_a_lie_repeats_is_nowhere(
    serve: Serve, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], prefetch: int
) -> None:
    token = "s3cret\\" + "0123456789" * 3
    lie = {name: value.replace("ours", token) for name, value in changes.items()}
    liar = serve(Changed(**lie) if lie else lambda _: problem(503, "x" * 280 + token))
    with Tickets(liar.url, token=token, timeout=0.1, prefetch=prefetch) as tickets:
        if "step" in changes and not prefetch:
            tickets.take("photos")
            return
        with pytest.raises(TicketsUnavailable) as caught:
            tickets.take("photos")
    assert "[token]" in str(caught.value)
    assert "s3cret" not in str(caught.value) + repr(caught.value) + caplog.text


def test_a_token_is_nowhere(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    token = "s3cret-of-ours"
    liar = serve(lambda _: problem(503, f"you sent {token}"))
    with Tickets(liar.url, token=token, timeout=0.3) as tickets:
        assert token not in repr(tickets)
        with pytest.raises(TicketsUnavailable) as caught:
            tickets.take("photos")
    refusing = serve(lambda _: problem(404, f"no such sequence {token}"))
    with Tickets(refusing.url, token=token) as tickets, pytest.raises(NoSuchSequence) as refused:
        tickets.take("photos")
    assert "404: no such sequence [token]" in str(refused.value)
    assert token not in repr(refused.value)
    assert b"Authorization: Bearer s3cret-of-ours\r\n" in liar.requests[0]
    assert "503: you sent [token]" in str(caught.value)
    assert token not in repr(caught.value) + caplog.text
    assert "you sent [token]" in caplog.text
