"""What a fork, and the interpreter's end, do to a client. Each program here runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lying_server import Honest, Serve

BEGIN = """
import os
early, hooked = [], lambda count: []
os.register_at_fork(after_in_child=lambda: early.extend(hooked(20)))  # before the client's own hooks
import ctypes, gc, greenlet, json, random, signal, socket, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process")  # multi-threaded: that is what is tried here
from ticketd_client import AsyncTickets, Tickets, TicketsUnavailable
url, native = sys.argv[1], ctypes.PyDLL(None).fork  # one that Python is not told of, as uWSGI forks its workers
tickets = Tickets(url, prefetch=1000, timeout=40)
fork, every = os.fork, []

def forked(child):
    '''A function that returns what `child` returned in a process of its own, which has ended well then.'''
    reading, writing = os.pipe()
    pid = fork()
    if pid:
        os.close(writing)
        def result():
            with open(reading) as pipe:
                text = pipe.read()
            assert os.waitpid(pid, 0)[1] == 0
            return json.loads(text)
        return result
    status = 1
    try:
        with open(writing, "w") as pipe:
            json.dump(child(), pipe)
        gc.collect()
        status = 0
    finally:
        os._exit(status)

def take(n=1000):
    return [tickets.take("photos") for _ in range(n)]

def rest():
    '''Return when every other thread stands still, as before a server like uWSGI forks.'''
    same, before = 0, None
    while same < 20:
        time.sleep(0.01)
        now = {number: (id(frame), frame.f_lasti) for number, frame in sys._current_frames().items()}
        del now[threading.get_ident()]
        same, before = (same + 1 if now == before else 0), now
"""
END = """
assert len(every) == len(set(every)), "a ticket comes twice"
"""
AT_RANDOM = """
OURS = os.path.dirname(sys.modules["ticketd_client"].__file__)
parent, children, busy = os.getpid(), [], False

def in_the_client(frame):
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame is not None

def handler(number, frame):
    '''Fork in the middle of a call. Both processes go on with it.'''
    global busy
    if busy:
        return
    busy = True
    if os.getpid() == parent and len(children) == begun and in_the_client(frame):
        reading, writing = os.pipe()
        pid = os.fork()
        children.append((pid, reading) if pid else writing)
        os.close(writing if pid else reading)
    busy = False

signal.signal(signal.SIGALRM, handler)
for begun in range(100):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3), 1e-3)
    while len(children) == begun:
        every += (got := call())
        if os.getpid() != parent:
            os.write(children[-1], json.dumps([*got, *call()]).encode())
            os._exit(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    pid, reading = children[-1]
    with open(reading) as pipe:
        every += json.load(pipe)
    assert os.waitpid(pid, 0)[1] == 0
"""
PROGRAMS = {
    **{
        f"in the middle of a call from a signal handler, {what}": f"call = lambda: {call}\n{AT_RANDOM}"
        for what, call in {
            "one ticket": '[tickets.take("photos")]',
            "over redis": 'tickets.take_many("photos", 25)',
            "with a key": '[tickets.take("photos", key=7)]',
        }.items()
    },
    "while a greenlet waits": """
main, green = greenlet.getcurrent(), None
class Switching(socket.socket):
    '''As gevent does it: another greenlet runs while one waits for a socket.'''
    def recv_into(self, *given):
        if greenlet.getcurrent() is green:
            main.switch()
        return super().recv_into(*given)
socket.socket = Switching
def finish():
    while not isinstance(got := green.switch(), list):
        pass
    return got
for prefetch, n in ((0, 1), (0, 9000), (100, 1000)):
    tickets = Tickets(url, prefetch=prefetch, timeout=60)
    every += take(1)
    rest()
    green = greenlet.greenlet(lambda: tickets.take_many("photos", n))
    assert green.switch() == (), "it waits"
    child = forked(lambda: finish() + take(10))
    every += finish() + take(10) + child()
    tickets.close()
""",
    "children of children, also of forks that Python is not told of": """
others = Tickets(url, prefetch=0, timeout=60)
def some():
    return take(100) + tickets.take_many("photos", 5) + others.take_many("photos", 20)
every += some()
for fork in (os.fork, native):
    rest()
    children = [forked(lambda: some() + forked(some)() + take()) for _ in range(3)]
    every += some() + take() + sum((child() for child in children), [])
""",
    "with asyncio": """
import asyncio
tickets = AsyncTickets(url, prefetch=100, timeout=60)
def take(n=200):
    return asyncio.run(tickets.take_many("photos", n))
every += take(1)
child = forked(lambda: take() + take())
every += take() + child()
""",
    "while threads wait for blocks": """
stop = threading.Event()
def work():
    while not stop.is_set():
        every.append(tickets.take("photos"))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
parts = [child() for child in [forked(lambda: take(200)) for _ in range(20)]]
stop.set()
for each in threads: each.join()
every += sum(parts, [])
""",
    "in a hook before the client's own": """
hooked = take
every += take(10)
child = forked(lambda: early + take(100))
every += take(100) + child()
""",
    "on connections of its own, over redis": """
def sockets():
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return sum(os.readlink(each).startswith("socket:") for each in links if os.path.islink(each))
every += take(1)
rest()
assert sockets() == 1
assert forked(sockets)() == 0, "what the parent closes would stay open"
fork = native
assert forked(lambda: tickets.close() or sockets())() == 0
""",
    "that ends as a program does": """
every += take(1)
rest()
pid = native()
if not pid:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it says what is left open, which is its parent's
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
}
ENDINGS = {
    "in a hook": "import atexit; atexit.register(take); take(10)",
    "with asyncio": "import asyncio; asyncio.run(AsyncTickets(url).take('photos'))",
    "in a finalizer": """
class Late:
    def __del__(self):
        try:
            tickets.take_many("photos", 5000)
        except Exception:
            pass
late = Late()
take(10)
""",
    "while a thread waits": "threading.Thread(target=take, daemon=True).start(); time.sleep(0.3)",
}


def run(program: str, url: str) -> None:
    """Run the program. It has to end by itself and well, without a word about what it left open."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", BEGIN + program + END, url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_parent_and_child_share_nothing(serve: Serve, program: str) -> None:
    run(PROGRAMS[program], serve(Honest()).over("redis" if "redis" in program else "http"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_without_close(serve: Serve, ending: str) -> None:
    run(ENDINGS[ending], serve((lambda _: b"") if "waits" in ending else Honest()).url)
