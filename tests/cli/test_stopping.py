"""Commands that run on until Ctrl-C or SIGTERM."""

import os
import signal
import subprocess
import sys
from threading import Event, Lock

import pytest

from odradek.cli.stopping import stopping

TWICE = """
import os, signal
from odradek.cli.stopping import stopping
with stopping(lambda: None):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
print("still here")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_while_the_main_thread_holds_what_stop_needs(number):
    """The lock is like that of an Event that the main thread is about to wait for."""
    lock, stopped = Lock(), Event()

    def stop():
        with lock:
            stopped.set()

    with stopping(stop):
        with lock:
            os.kill(os.getpid(), number)
            assert not stopped.is_set()
        assert stopped.wait(60)


def test_nothing_is_raised_that_a_library_could_drop():
    stopped = Event()
    with stopping(stopped.set):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            pytest.fail(f"the signal raised {error!r}")
        assert stopped.wait(60)


def test_without_a_signal_nothing_is_stopped_and_handlers_are_as_before():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stopping(lambda: pytest.fail("nobody asked")):
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_signal_does_not_wait():
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGINT, "")
