"""A fork in the middle of a call, from a signal handler or beside a greenlet: parent and child share no ticket."""

from __future__ import annotations

import threading

import pytest
from test_fork import run

from lying_server import Honest, Serve
from redis_door import RedisDoor

HARNESS = """
import dis, faulthandler, random, select, signal
import ticketd_client
OURS = os.path.dirname(ticketd_client.__file__)
reading, writing = os.pipe()
in_child, ended = False, 0
children, mine, told = [], [], bytearray()

def in_the_client(frame):
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame is not None

def fork():
    global in_child
    pid = os.fork()
    in_child = pid == 0
    if pid:
        children.append(pid)
    else:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.dump_traceback_later(10, exit=True)
        sys.settrace(None)

def go_on(got):
    '''After each call. The child tells what it was given, and by a call of its own, and ends.'''
    if in_child:
        os.write(writing, json.dumps([*got, *call()]).encode() + b"\\n")
        os._exit(0)
    mine.extend(got)
    collect(10)

def collect(most):
    global ended
    while len(children) - ended > most:
        status = os.waitpid(children[ended], 0)[1]
        assert status == 0, status
        ended += 1
        if select.select([reading], [], [], 0)[0]:  # else the line came with those before
            told.extend(os.read(reading, 1_000_000))

def end():
    collect(0)
    theirs = [json.loads(line) for line in told.splitlines()]
    assert len(theirs) == len(children)
    every = mine + [each for part in theirs for each in part]
    print(len(every) - len(set(every)))
"""

AT_RANDOM = """
begun, busy = 0, False
def handler(number, frame):
    global busy
    if busy:
        return
    busy = True
    if not in_child and len(children) == begun and in_the_client(frame):
        fork()
    busy = False
signal.signal(signal.SIGALRM, handler)
while len(children) < 500:
    begun = len(children)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3), 1e-3)
    while len(children) == begun:
        go_on(call())
signal.setitimer(signal.ITIMER_REAL, 0)
end()
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("call", ['[tickets.take("photos")]', 'tickets.take_many("photos", 25)'])
def test_five_hundred_signals(serve: Serve, call: str) -> None:
    program = HARNESS + f"call = lambda: {call}\n" + AT_RANDOM
    assert run(program, serve(Honest()).url, 100) == "0\n"


EACH_POINT = """
at = passed = 0
before = {}
LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "PRECALL", "SEND", "YIELD")
names = {}
def name(frame, offset):
    code = frame.f_code
    if code not in names:
        names[code] = {each.offset: each.opname for each in dis.get_instructions(code)}
    return names[code].get(offset, "RESUME")

def trace(frame, what, _):
    '''Fork at the `at`th point at which Python may run a signal handler: after a call or a jump back, at a start.'''
    global passed
    if not frame.f_code.co_filename.startswith(OURS):
        return None
    frame.f_trace_opcodes = True
    if what == "opcode" and not in_child:
        last, before[frame] = before.get(frame, -1), frame.f_lasti
        if name(frame, last).startswith(LOOKS):
            passed += 1
            if passed == at:
                fork()
    return trace

def traced(call, number):
    global at, passed
    at, passed = number, 0
    before.clear()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(None)

while True:
    PREPARE
    begun = len(children)
    at += 1
    go_on(traced(call, at))
    if len(children) == begun:
        break
assert at > LEAST, at
end()
"""
CALLS = [
    ('[tickets.take("photos")]', "take(1)", 3),
    ('tickets.take_many("photos", 5)', "take(1)", 5),
    ('[tickets.take("photos", key=7)]', "take(1)", 40),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("door", ["http", "redis"])
@pytest.mark.parametrize(("call", "prepare", "least"), CALLS, ids=["take", "take_many", "single"])
def test_each_point_at_which_a_signal_handler_may_run(
    serve: Serve, call: str, prepare: str, least: int, door: str
) -> None:
    program = HARNESS + f"call = lambda: {call}\n" + EACH_POINT.replace("PREPARE", prepare).replace("LEAST", str(least))
    if door == "http":
        assert run(program, serve(Honest()).url, 100) == "0\n"
        return
    with RedisDoor() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        assert run(program, server.url, 100) == "0\n"
        server.shutdown()


def test_a_greenlet_inside_take_many(serve: Serve) -> None:
    pytest.importorskip("greenlet")
    program = """
import greenlet
from ticketd_client.connections import Connection
tickets = Tickets(sys.argv[1], prefetch=0, timeout=5)
take(10)
main = greenlet.getcurrent()
receive = Connection.receive
def elsewhere(*args):
    if greenlet.getcurrent() is green:
        main.switch()  # as gevent does where a greenlet waits for a socket
    return receive(*args)
Connection.receive = elsewhere
green = None
def finish():
    while not isinstance(got := green.switch(), list):
        pass
    return got
some = Tickets(sys.argv[1], prefetch=100, timeout=5)
every = [some.take("photos")]
for call in (
    lambda: [tickets.take("photos")],
    lambda: tickets.take_many("photos", 500),
    lambda: tickets.take_many("photos", 9000),
    lambda: some.take_many("photos", 1000),  # has some from memory when it waits
):
    time.sleep(0.2)  # nothing is fetched in the background
    green = greenlet.greenlet(call)
    assert green.switch() == (), "it waits"
    child = forked(lambda: finish() + take(10))
    every += finish() + take(10)
    every += child()
some.close()
print(len(every), len(set(every)))
"""
    assert run(program, serve(Honest()).url) == "21083 21083\n"
