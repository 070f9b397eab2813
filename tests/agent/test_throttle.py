"""The throttle on a clock that only moves when told: exact, never ahead, and paused when the lease has lapsed."""

import threading
from collections.abc import Callable

import pytest

from rampmeter.core.clock import ManualClock, SystemClock
from rampmeter.core.errors import LeaseLost
from rampmeter.throttle import FlowCounters, Throttle

MB = 1_000_000
MIB = 1024 * 1024


class ScriptedClock(ManualClock):
    """Fires each event exactly at its time, also in the middle of a sleep."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.longest_sleep_s = 0.0

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        self.events.append((time_s, event))
        self.events.sort(key=lambda item: item[0])

    def sleep(self, duration_s: float) -> None:
        self.longest_sleep_s = max(self.longest_sleep_s, duration_s)
        end_s = self.now() + duration_s
        while self.events and self.events[0][0] <= end_s:
            time_s, event = self.events.pop(0)
            self.advance(time_s - self.now())
            event()
        self.advance(end_s - self.now())


@pytest.fixture
def clock() -> ScriptedClock:
    return ScriptedClock()


def write(throttle: Throttle, num_bytes: int) -> None:
    """Take `num_bytes` in chunks, as a stream does."""
    while num_bytes > 0:
        chunk = min(num_bytes, throttle.chunk_bytes())
        throttle.take(chunk)
        throttle.add_done(chunk)
        num_bytes -= chunk


@pytest.mark.parametrize("rate", [100_000, 5 * MB, 50 * MB, 400 * MB])
def test_rate_is_exact(clock: ScriptedClock, rate: int) -> None:
    """Ten seconds' worth of bytes take ten seconds, from the very first byte on."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(rate)
    write(throttle, 10 * rate)
    assert clock.now() == pytest.approx(10.0, rel=1e-6)


def test_bucket_starts_empty(clock: ScriptedClock) -> None:
    """The first chunk waits for its own bytes; there is no burst at the start."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(4 * MIB)
    throttle.take(MIB)
    assert clock.now() == pytest.approx(0.25)


def test_idle_time_buys_a_quarter_second_at_most(clock: ScriptedClock) -> None:
    """After a long pause of the writer the bucket holds 0.25 s of the rate, not the pause."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(4 * MB)
    clock.advance(3600.0)
    throttle.take(1 * MB)
    assert clock.now() == 3600.0
    throttle.take(1 * MB)
    assert clock.now() == pytest.approx(3600.25, abs=1e-6)


def test_rate_changes_are_followed_exactly(clock: ScriptedClock) -> None:
    """200, then 50, then 0, then 400 MB/s: the bytes out at any time are the integral of the rate."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(200 * MB)
    for time_s, rate in [(1.0, 50 * MB), (2.0, 0), (5.0, 400 * MB)]:
        clock.at(time_s, lambda rate=rate: throttle.set_rate(rate))  # type: ignore[misc]
    seen: list[tuple[float, int]] = []
    for time_s in (1.0, 2.0, 3.5, 5.0):
        clock.at(time_s, lambda: seen.append((clock.now(), throttle.counters().done_bytes)))
    write(throttle, 650 * MB)
    assert clock.now() == pytest.approx(6.0, rel=1e-6)
    for (_, done_bytes), allowed_bytes in zip(seen, [200 * MB, 250 * MB, 250 * MB, 250 * MB], strict=True):
        assert allowed_bytes - MIB <= done_bytes <= allowed_bytes


def test_what_was_paid_stays_paid_and_nothing_more(clock: ScriptedClock) -> None:
    """A chunk half paid when the rate drops costs the other half at the new rate."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(1 * MB)
    clock.at(0.5, lambda: throttle.set_rate(100_000))
    throttle.take(1 * MB)
    assert clock.now() == pytest.approx(5.5)


def test_a_pause_leaves_no_credit_behind(clock: ScriptedClock) -> None:
    """Credit gathered before a pause is gone after it."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(4 * MB)
    clock.advance(1.0)
    throttle.set_rate(0)
    clock.advance(10.0)
    throttle.set_rate(4 * MB)
    throttle.take(1 * MB)
    assert clock.now() == pytest.approx(11.25)


def test_unthrottled_never_sleeps_and_leaves_no_credit(clock: ScriptedClock) -> None:
    """Without a rate nothing waits, and a rate that comes later starts with an empty bucket."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(None)
    write(throttle, 1000 * MB)
    assert clock.now() == 0.0
    clock.advance(5.0)
    throttle.set_rate(1 * MB)
    throttle.take(1 * MB)
    assert clock.now() == pytest.approx(6.0)


def test_an_armed_lease_waits_for_its_rate(clock: ScriptedClock) -> None:
    """Before any rate was set not one byte may leave."""
    throttle = Throttle(clock=clock)
    clock.at(7.0, lambda: throttle.set_rate(1 * MB))
    throttle.take(1 * MB)
    assert clock.now() == pytest.approx(8.0, abs=0.051)


def test_a_lapsed_lease_pauses_until_renewed(clock: ScriptedClock) -> None:
    """After the deadline nothing leaves; a renewal goes on with an empty bucket."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(10 * MB, deadline_s=2.0)
    clock.at(9.0, lambda: throttle.set_rate(10 * MB, deadline_s=100.0))
    seen: list[int] = []
    clock.at(8.9, lambda: seen.append(throttle.counters().done_bytes))
    write(throttle, 30 * MB)
    assert 19 * MB - MIB <= seen[0] <= 20 * MB
    assert clock.now() == pytest.approx(10.0, abs=0.051)


@pytest.mark.parametrize("rate", [10 * MB, None])
def test_waking_after_the_deadline_lets_nothing_out(clock: ScriptedClock, rate: int | None) -> None:
    """A process stopped past its deadline finds rate 0 at the next chunk, whatever the bucket held."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(rate, deadline_s=20.0)
    clock.advance(1.0)
    throttle.take(1)
    clock.advance(100.0)
    clock.at(150.0, lambda: throttle.abort("lease_lost"))
    with pytest.raises(LeaseLost, match="lease_lost"):
        throttle.take(1)
    assert clock.now() == pytest.approx(150.0, abs=0.051)


def test_abort_ends_a_wait_and_the_first_reason_stands(clock: ScriptedClock) -> None:
    """Whoever waits gets LeaseLost, and so does whoever comes later."""
    throttle = Throttle(clock=clock)
    clock.at(1.0, lambda: throttle.abort("revoked"))
    with pytest.raises(LeaseLost, match="revoked"):
        throttle.take(1)
    throttle.abort("closing")
    throttle.set_rate(None)
    with pytest.raises(LeaseLost, match="revoked"):
        throttle.take(1)
    assert throttle.abort_reason == "revoked"


def test_abort_is_noticed_within_one_sleep(clock: ScriptedClock) -> None:
    """No sleep is longer than 50 ms, so that a cut or an abort bites at once."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(1)
    clock.at(2.0, lambda: throttle.abort("closing"))
    with pytest.raises(LeaseLost):
        throttle.take(MIB)
    assert clock.longest_sleep_s <= 0.05
    assert clock.now() <= 2.05


@pytest.mark.parametrize(
    ("rate", "chunk_bytes", "window_bytes"),
    [
        (0, 64 * 1024, MIB),
        (100_000, 64 * 1024, MIB),
        (1 * MB, 250_000, MIB),
        (20 * MB, MIB, 5 * MB),
        (1000 * MB, MIB, 16 * MIB),
        (None, MIB, 16 * MIB),
    ],
)
def test_pieces_scale_with_the_rate(rate: int | None, chunk_bytes: int, window_bytes: int) -> None:
    """Chunk and window are a quarter second of the rate within their limits."""
    throttle = Throttle(clock=ManualClock())
    throttle.set_rate(rate)
    assert (throttle.chunk_bytes(), throttle.window_bytes()) == (chunk_bytes, window_bytes)


def test_negative_rates_are_refused() -> None:
    """A rate below zero is a mistake of the caller."""
    with pytest.raises(ValueError, match="negative"):
        Throttle().set_rate(-1)


def test_counters_split_the_time_of_the_flush(clock: ScriptedClock) -> None:
    """Asleep, blocked and busy add up to the time since the first byte was asked for."""
    throttle = Throttle(clock=clock)
    clock.advance(50.0)
    throttle.set_rate(1 * MB)
    throttle.take(500_000)
    with throttle.blocked():
        clock.advance(2.0)
    clock.advance(1.0)
    throttle.add_done(500_000)
    throttle.end()
    clock.advance(77.0)
    counters = throttle.counters()
    assert counters.done_bytes == 500_000
    assert counters.throttled_s == pytest.approx(0.5)
    assert counters.blocked_s == pytest.approx(2.0)
    assert counters.busy_s == pytest.approx(1.0)


def test_a_hanging_write_shows_while_it_hangs(clock: ScriptedClock) -> None:
    """A reader of the counters sees blocked time growing before the call returns."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(None)
    throttle.take(1)
    throttle.begin_blocked()
    clock.advance(60.0)
    assert throttle.counters().blocked_s == pytest.approx(60.0)
    assert throttle.counters().busy_s == pytest.approx(0.0)
    throttle.end_blocked()
    throttle.end_blocked()
    assert throttle.counters().blocked_s == pytest.approx(60.0)


def in_a_thread(work: Callable[[], None]) -> None:
    """Have it done by another thread, now."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


def test_two_threads_in_the_file_are_one_blocked_flush(clock: ScriptedClock) -> None:
    """Seconds that both spend there count once, until the last of them is out."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(None)
    throttle.take(1)
    throttle.begin_blocked()
    clock.advance(1.0)
    in_a_thread(throttle.begin_blocked)
    clock.advance(1.0)
    throttle.end_blocked()
    clock.advance(1.0)
    counters = throttle.counters()
    assert (counters.blocked_s, counters.busy_s) == (3.0, 0.0)


def test_the_end_of_one_thread_does_not_end_the_wait_of_another(clock: ScriptedClock) -> None:
    """torch closes after every tensor, also where nothing was begun."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(None)
    throttle.take(1)
    throttle.begin_blocked()
    in_a_thread(throttle.end_blocked)
    clock.advance(2.0)
    assert throttle.counters().blocked_s == 2.0


def test_a_flush_is_throttled_while_one_of_its_threads_could_write_more(clock: ScriptedClock) -> None:
    """One is in the file and another asleep in the bucket: the rate is what holds them up, and counts alone."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(1 * MB)
    clock.at(0.2, lambda: in_a_thread(throttle.begin_blocked))
    throttle.take(MB)
    clock.advance(0.5)
    counters = throttle.counters()
    assert counters.throttled_s == pytest.approx(1.0)
    assert counters.blocked_s == pytest.approx(0.5)
    assert counters.busy_s == pytest.approx(0.0, abs=1e-6)


def test_the_parts_of_a_flush_by_many_threads_add_up_to_its_time() -> None:
    """On the real clock, with threads that sleep, write and compute as they like."""
    throttle = Throttle()
    throttle.set_rate(40 * MB)

    def work() -> None:
        for _ in range(20):
            throttle.take(100_000)
            with throttle.blocked():
                sum(range(2_000))

    before_s = SystemClock().now()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    throttle.end()
    counters = throttle.counters()
    elapsed_s = SystemClock().now() - before_s
    parts_s = counters.throttled_s + counters.blocked_s + counters.busy_s
    assert 0.0 < counters.throttled_s <= parts_s <= elapsed_s


def test_two_threads_share_one_rate() -> None:
    """Threads of one rank together stay at the rate, on the real clock."""
    clock = SystemClock()
    throttle = Throttle(clock=clock)
    threads = [threading.Thread(target=write, args=(throttle, 4 * MB)) for _ in range(2)]
    before_s = clock.now()  # from here on the bucket fills
    throttle.set_rate(20 * MB)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert clock.now() - before_s >= 0.4 - 0.001
    assert throttle.counters().done_bytes == 8 * MB


def test_a_call_without_bytes_shows_and_costs_nothing(clock: ScriptedClock) -> None:
    """Before the first byte and after it, in several threads; the counters are those of a flush without it."""
    throttle = Throttle(clock=clock)
    throttle.set_rate(None)
    assert not throttle.is_in_storage
    with throttle.in_storage():
        clock.advance(5.0)
        assert throttle.is_in_storage
    assert throttle.counters() == FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)
    throttle.take(1)
    with throttle.in_storage(), throttle.in_storage():
        clock.advance(2.0)
    assert not throttle.is_in_storage
    assert throttle.counters() == FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=2.0)
