"""What a fork, and the interpreter's end, do to a client. Each runs in a process of its own, as a program would."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lying_server import Honest, Says, Serve
from redis_door import RedisDoor

PROGRAM = """
import gc, json, os, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process")  # multi-threaded: that is what is tried here
from ticketd_client import Tickets
tickets = Tickets(sys.argv[1], prefetch=1000, timeout=5)

def forked(child):
    reading, writing = os.pipe()
    pid = os.fork()
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

def take(n=3000):
    return [tickets.take("photos") for _ in range(n)]
"""


def run(program: str, url: str, timeout: float = 30, before: str = "") -> str:
    """What the program prints; it has to end by itself, and well. `before`: what it does before it imports us."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", before + PROGRAM + program, url],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_children_begin_with_nothing_and_share_no_ticket(serve: Serve) -> None:
    assert (
        run(
            """
first = take(100)
children = [forked(take) for _ in range(4)]
parent = take()
parts = [first, parent, *(child() for child in children)]
every = [each for part in parts for each in part]
print(len(every), len(set(every)))
""",
            serve(Honest()).url,
        )
        == "15100 15100\n"
    )


def test_children_of_children(serve: Serve) -> None:
    program = """
take(10)
def child():
    mine = take(100)
    return mine + forked(lambda: take(100))()
every = take(100) + forked(child)() + take(100)
print(len(every), len(set(every)))
"""
    assert run(program, serve(Honest()).url) == "400 400\n"


def test_forks_while_threads_take_and_blocks_are_under_way(serve: Serve) -> None:
    program = """
taken, stop = [], False
def work():
    while not stop:
        taken.append(tickets.take("photos"))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
children = [forked(lambda: take(500)) for _ in range(30)]
parts = [child() for child in children]
stop = True
for each in threads: each.join()
every = [each for part in parts for each in part]
assert len(every) == 15000
every += taken
print(len(every) == len(set(every)))
"""
    assert run(program, serve(Honest(after=0.001)).url, 60) == "True\n"


def test_a_fork_while_the_first_block_is_under_way(serve: Serve) -> None:
    program = """
thread = threading.Thread(target=lambda: results.append(tickets.take("photos")))
results = []
thread.start()
time.sleep(0.2)
child = forked(lambda: take(1))()
thread.join()
print(len(set(results + child)))
"""
    assert run(program, serve(Honest(after=0.5)).url) == "2\n"


def test_a_connection_of_the_parent_is_not_the_childs(serve: Serve) -> None:
    server = serve(Honest())
    program = """
import logging
records = []
logging.getLogger("ticketd_client").addHandler(type("Kept", (logging.Handler,), {"emit": records.append})())
single = Tickets(sys.argv[1], prefetch=0)
single.take("photos")
child = forked(lambda: [*(single.take("photos") for _ in range(100)), len(records)])
mine = [single.take("photos") for _ in range(100)]
*others, failures = child()
print(len(set(mine + others)), failures)
single.close()
"""
    assert run(program, server.url) == "200 0\n"


def test_a_fork_that_python_is_not_told_of(serve: Serve) -> None:
    """As uWSGI forks its workers."""
    program = """
import ctypes
fork = ctypes.PyDLL(None).fork
several = [tickets, Tickets(sys.argv[1], prefetch=100), Tickets(sys.argv[1], prefetch=0)]
def some(n=400):
    return [each.take("photos") for _ in range(n) for each in several] + tickets.take_many("photos", 50)
first = some(10)
reading, writing = os.pipe()
children = []
for _ in range(3):
    time.sleep(0.1)  # the threads in the background have nothing to do: uWSGI forks before there are any
    pid = fork()
    if not pid:
        status = 1
        try:
            mine = tickets.take_many("photos", 5) + some() + forked(some)()
            os.write(writing, json.dumps(mine).encode() + b"\\n")
            for each in several: each.close()
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    children.append(pid)
parent = some()
os.close(writing)
with open(reading) as pipe:
    every = first + parent + [each for line in pipe for each in json.loads(line)]
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
for each in several: each.close()
print(len(every), len(set(every)))
"""
    total = 80 + 1250 + 3 * (5 + 1250 + 1250)
    assert run(program, serve(Honest()).url) == f"{total} {total}\n"


@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_a_child_that_closes_keeps_no_connection_of_its_parents(serve: Serve, fork: str) -> None:
    """What the parent closes is closed, though a child of it lives on."""
    server = serve(lambda path: Says([server.connections]) if path == "/count" else honest(path))
    honest = Honest()
    program = f"""
import ctypes, urllib.request
take(1)
(reading, ready), (waiting, end) = os.pipe(), os.pipe()
pid = {fork}()
if not pid:
    os.close(end)
    if {"ctypes" in fork}:
        tickets.close()
    os.write(ready, b"closed")
    os.read(waiting, 1)
    os._exit(0)
os.close(waiting)
os.read(reading, 6)
take(1)
tickets.close()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
began = time.monotonic()
while True:
    with opener.open(sys.argv[1] + "/count", timeout=5) as answer:
        count = json.load(answer)
    if count == [1] or time.monotonic() - began > 5:
        break
    time.sleep(0.01)
print(count)
os.close(end)
os.waitpid(pid, 0)
"""
    assert run(program, server.url) == "[1]\n"


def test_a_child_that_python_is_not_told_of_ends_whatever_its_parents_threads_held(serve: Serve) -> None:
    program = """
import ctypes, signal
held, go_on = threading.Event(), threading.Event()
def stop(frame, what, called):
    if what == "c_call" and getattr(called, "__name__", "") == "put" and not held.is_set():
        held.set()  # the lock of the threads in the background is this one's
        go_on.wait()
def hold():
    sys.setprofile(stop)
    take(100)
thread = threading.Thread(target=hold, daemon=True)
thread.start()
assert held.wait(5)
pid = ctypes.PyDLL(None).fork()
if not pid:
    signal.alarm(10)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(0)
print(os.waitpid(pid, 0)[1])
go_on.set()
thread.join()
"""
    assert run(program, serve(Honest()).url) == "0\n"


def test_a_closed_clients_child_stays_closed(serve: Serve) -> None:
    program = """
def refused():
    try:
        return take(1)
    except Exception as error:
        return str(error)
take(1)
tickets.close()
print(refused(), forked(refused)(), forked(lambda: forked(refused)())(), sep="; ")
"""
    assert run(program, serve(Honest()).url) == "; ".join(["this client is closed"] * 3) + "\n"


@pytest.mark.parametrize("prefetch", [50, 0])
@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_forks_over_redis(prefetch: int, fork: str) -> None:
    """While the parent's threads wait for answers. What Python is not told of has no threads beside it, as above."""
    program = f"""
import ctypes
tickets = Tickets(sys.argv[1], prefetch={prefetch}, timeout=20)
take(1)
taken, stop = [], {"ctypes" in fork}
def work():
    while not stop:
        taken.append(tickets.take("photos"))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
if stop:
    time.sleep(0.1)
os.fork = {fork}
children = [forked(lambda: take(100)) for _ in range(5)]
every = take(100) + [each for child in children for each in child()]
assert len(every) == 600
stop = True
for each in threads: each.join()
every += taken
print(len(every) == len(set(every)))
tickets.close()
"""
    with RedisDoor() as door:
        door.after = 0.002
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        assert run(program, door.url, 60) == "True\n"
        door.shutdown()


def test_a_hook_in_the_child_that_runs_before_the_clients(serve: Serve) -> None:
    program = """
first = take(10)
child = forked(lambda: list(hooked) + take(100))
every = first + take(100) + child()
print(len(every), len(set(every)))
"""
    early = """
import os
hooked = []
os.register_at_fork(after_in_child=lambda: hooked.extend(tickets.take("photos") for _ in range(20)))
"""
    assert run(program, serve(Honest()).url, before=early) == "230 230\n"


def test_multiprocessing(serve: Serve) -> None:
    program = """
import multiprocessing
take(10)
with multiprocessing.get_context("fork").Pool(4) as pool:
    parts = pool.map(take, [500] * 8)
every = [each for part in parts for each in part] + take(500)
print(len(every), len(set(every)))
"""
    assert run(program, serve(Honest()).url) == "4500 4500\n"


@pytest.mark.parametrize(
    "program",
    [
        "take()",
        "take(); tickets.close()",
        "threading.Thread(target=take, daemon=True).start(); time.sleep(0.05)",
        "import atexit; atexit.register(take); take(10)",
        "import asyncio, ticketd_client as client; asyncio.run(client.AsyncTickets(sys.argv[1]).take('photos'))",
    ],
)
def test_a_program_ends_without_close(serve: Serve, program: str) -> None:
    server = serve(Honest(after=0.001))
    began = time.monotonic()
    run(program + "\n", server.url)
    assert time.monotonic() - began < 10


def test_a_finalizer_after_the_threads_have_stopped_is_refused(serve: Serve) -> None:
    program = """
class Late:
    def __del__(self):
        try:
            tickets.take_many("photos", 5000)
        except Exception as error:
            print(error, flush=True)
late = Late()
take(10)
"""
    assert run(program, serve(Honest()).url) == "the interpreter is ending\n"


def test_a_program_ends_while_a_server_is_silent(serve: Serve) -> None:
    server = serve(lambda _: Says({}, after=60))
    program = """
tickets = Tickets(sys.argv[1], timeout=60)
threading.Thread(target=take, daemon=True).start()
time.sleep(0.3)
"""
    began = time.monotonic()
    run(program, server.url)
    assert time.monotonic() - began < 10
