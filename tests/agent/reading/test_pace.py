"""The pace of a restore: every block is paid for once and exactly, and nobody waits for a turn that will not come."""

import io
import threading

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.errors import LeaseLost
from rampmeter.reading.pace import UNPACED, LeasedPace
from rampmeter.throttle import Throttle

SIZE = 300_000


class Scene:
    """A cell on a clock that moves when somebody sleeps, and what was told."""

    def __init__(self, rate=100_000, num_bytes=SIZE):
        self.clock, self.ends = ManualClock(), 0
        self.throttle = Throttle(clock=self.clock)
        self.throttle.set_rate(rate)
        self.pace = LeasedPace(self.throttle, num_bytes, self._ended)

    def _ended(self):
        self.ends += 1

    def read(self, name="a", block=0, num_bytes=SIZE):
        """Reads one block as the verifier does; the seconds that it took."""
        begun_s, stream, read = self.clock.now(), io.BytesIO(b"x" * num_bytes), self.pace.reader(name, block)
        left = memoryview(bytearray(num_bytes))
        while left:
            left = left[read(stream, left) :]
        return self.clock.now() - begun_s


def test_a_block_is_read_at_the_rate():
    """3 s for 300 kB at 100 kB/s, and the bytes are counted as they come."""
    scene = Scene()
    assert scene.read() == pytest.approx(3.0, abs=0.1)
    assert scene.throttle.counters().done_bytes == SIZE


def test_a_block_that_is_read_again_is_not_paid_for_again():
    """It comes from the page cache; another block of the file, or that of another file, is paid for."""
    scene = Scene(num_bytes=3 * SIZE)
    scene.read()
    assert scene.read() == 0.0
    assert scene.read(block=1) == pytest.approx(3.0, abs=0.1)
    assert scene.read(name="b") == pytest.approx(3.0, abs=0.1)
    assert scene.throttle.counters().done_bytes == 3 * SIZE


def test_the_last_byte_is_told_once():
    """Not before all of it was read, and not again for what is read twice."""
    scene = Scene(num_bytes=SIZE + 10)
    scene.read()
    assert scene.ends == 0
    scene.read(block=1, num_bytes=10)
    scene.read(block=1, num_bytes=10)
    assert scene.ends == 1


def test_time_in_the_file_is_told_apart_from_time_in_the_bucket():
    """What the coordinator is told of a restore is what it is told of a save."""
    scene = Scene()
    scene.read()
    counters = scene.throttle.counters()
    assert counters.throttled_s == pytest.approx(3.0, abs=0.1)
    assert counters.blocked_s == counters.busy_s == 0.0


def test_what_raises_ends_threads_that_wait_for_their_turn():
    """At rate 0 they would wait for ever."""
    pace = LeasedPace(throttle := Throttle(), SIZE, lambda: None)
    errors = []

    def wait():
        try:
            pace.reader("a", 0)(io.BytesIO(b"x"), memoryview(bytearray(1)))
        except LeaseLost as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(KeyboardInterrupt), pace.guarded():
        raise KeyboardInterrupt
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1
    assert throttle.abort_reason == "interrupted"


def test_without_a_lease_nothing_is_counted_and_nothing_waited_for():
    """As fast as it goes."""
    buffer = memoryview(bytearray(4))
    with UNPACED.guarded():
        assert UNPACED.reader("a", 0)(io.BytesIO(b"xyz"), buffer) == 3
