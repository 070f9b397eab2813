"""How a real writer process is steered from training: rates, deadlines, aborts."""

import os
import signal

from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.parcel import Met
from rampmeter.daemon.tidings import NOTHING_YET
from rampmeter.throttle import Throttle
from support.hired import CLOCK, LIMIT_S, MIB, Desk, at_rate, failed, no_checkpoint
from support.large import LARGE
from support.waiting import wait_for

SOON_S = 0.4
FOLLOWED_S = 1.0
"""So soon each new rate is obeyed."""


def change(throttle: Throttle, bytes_per_s: int | None) -> None:
    """Another rate, and the writer obeys it in time."""
    throttle.set_rate(bytes_per_s)
    wait_for(lambda: throttle.is_followed, what=f"{bytes_per_s} B/s to be obeyed", limit_s=FOLLOWED_S)


def test_the_writer_follows_the_rate(desk: Desk) -> None:
    """Armed it writes nothing; then as fast as it may; a pause stops it at once; what it counts is known here.

    Each change is obeyed within a second.
    """
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes == [16 * MIB], what="the first byte in hand")
    assert throttle.counters().done_bytes == 0
    before_s = CLOCK.now()
    change(throttle, 8 * MIB)
    wait_for(lambda: throttle.counters().done_bytes >= 4 * MIB, what="4 MiB")
    assert CLOCK.now() - before_s > 0.4
    change(throttle, 0)
    CLOCK.sleep(0.1)  # the chunk that it was in
    paused_bytes = throttle.counters().done_bytes
    CLOCK.sleep(SOON_S)
    assert throttle.counters().done_bytes == paused_bytes < 8 * MIB
    change(throttle, 2 * MIB)
    wait_for(lambda: throttle.counters().done_bytes > paused_bytes, what="more", limit_s=FOLLOWED_S)
    throttle.set_rate(None)
    future.result(LIMIT_S)
    counters = throttle.counters()
    assert counters.done_bytes > 16 * MIB
    assert counters.throttled_s > SOON_S + 0.4


def test_a_rate_counts_as_followed_when_the_writer_obeys_it(desk: Desk, guardian: Guardian) -> None:
    """Not before: what was lowered may still be in use by a writer that has not looked."""
    throttle = at_rate(2 * MIB)
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    wait_for(lambda: throttle.is_followed, what="the writer to follow")
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGSTOP)
    throttle.set_rate(MIB)
    CLOCK.sleep(0.2)
    assert not throttle.is_followed
    os.kill(guardian.pid, signal.SIGCONT)
    wait_for(lambda: throttle.is_followed, what="the writer to follow")
    throttle.set_rate(None)
    future.result(LIMIT_S)


def test_a_lapsed_lease_pauses_the_writer_too(desk: Desk) -> None:
    """Nobody needs to tell it: the deadline went over with the rate."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    throttle.set_rate(4 * MIB, CLOCK.now() + 1.0)
    CLOCK.sleep(1.2)
    lapsed_bytes = throttle.counters().done_bytes
    CLOCK.sleep(SOON_S)
    assert 0 < throttle.counters().done_bytes == lapsed_bytes <= 4 * MIB
    throttle.set_rate(None)
    future.result(LIMIT_S)


def test_an_answer_that_comes_too_late_is_no_order(desk: Desk, guardian: Guardian) -> None:
    """All ranks have met in the moment in which the save was given up here: the writer takes the next order."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid, writer = guardian.pid, guardian._writer
    assert writer is not None
    writer.go_on(Met(NOTHING_YET))
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid == pid


def test_an_abort_stops_it_within_a_chunk(desk: Desk, guardian: Guardian) -> None:
    """With the reason that was given, and the same writer makes the next save."""
    throttle = at_rate(4 * MIB)
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: throttle.counters().done_bytes >= MIB, what="some bytes")
    pid = guardian.pid
    throttle.abort("revoked")
    before_s = CLOCK.now()
    assert failed(future) == "revoked"
    assert CLOCK.now() - before_s < 2.0
    assert throttle.counters().done_bytes < 8 * MIB
    assert no_checkpoint(desk.root)
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid == pid
