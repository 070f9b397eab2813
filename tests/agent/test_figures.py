"""What the agent tells of itself is what it measured: the coordinator learns capacity and order from these figures.

Real streams, throttled by a real bucket, write to slow files; only the clock is made by hand, so that every second is
known.
"""

import io
from dataclasses import replace

import pytest

from rampmeter.core.pacer import Action
from rampmeter.stream import MeteredStream
from rampmeter.throttle import FlowCounters
from support.answers import grant, noted, plan, wait
from support.scene import REPORT, Scene

MB = 1_000_000


class SlowFile(io.BytesIO):
    """Takes so many bytes/s, and no more; no descriptor."""

    def __init__(self, clock, bytes_per_s):
        super().__init__()
        self._clock, self.bytes_per_s = clock, bytes_per_s

    def write(self, data):
        self._clock.advance(len(data) / self.bytes_per_s)
        return super().write(data)


def stream_into(file, throttle):
    return MeteredStream(file, throttle=throttle, on_first_write=lambda: None, on_error=lambda _: None)


def saved(scene, *, lease, storage, num_bytes, cpu_s_per_mb=0.0):
    """A save of `num_bytes` under a lease of `lease` bytes/s on a storage that takes `storage`; its totals."""
    throttle = scene.flush(rate=lease)
    throttle.set_rate(lease)  # renewed as often as it takes
    stream = stream_into(SlowFile(scene.clock, storage), throttle)
    for _ in range(num_bytes // MB):
        scene.clock.advance(cpu_s_per_mb)
        stream.write(bytes(MB))
    stream.finish("f")
    throttle.end()
    counters = throttle.counters()
    scene.end(replace(REPORT, num_bytes=num_bytes, counters=counters))
    scene.say(noted)
    return counters


def asked_next(scene):
    """The next request for a slot."""
    scene.clock.advance(200.0)
    return scene.say(wait)


# -- where the time went ---------------------------------------------------------------------------------------------


def test_a_writer_held_by_its_lease_is_throttled():
    """2 MB/s leased on a storage that takes 20: a tenth of the time is in the file, the rest asleep."""
    counters = saved(Scene(), lease=2 * MB, storage=20 * MB, num_bytes=40 * MB)
    assert counters.done_bytes == 40 * MB
    assert counters.throttled_s == pytest.approx(18.0, rel=0.02)
    assert counters.blocked_s == pytest.approx(2.0, rel=0.02)
    assert counters.busy_s == pytest.approx(0.0, abs=1e-6)


def test_a_writer_held_by_the_storage_is_blocked():
    """20 MB/s leased on a storage that takes 2: blocked all the time, and a tenth of the grant achieved."""
    counters = saved(Scene(), lease=20 * MB, storage=2 * MB, num_bytes=40 * MB)
    asked_s = counters.throttled_s + counters.blocked_s
    assert counters.blocked_s == pytest.approx(20.0, rel=0.01)
    assert counters.throttled_s < 0.01 * asked_s
    assert counters.done_bytes / asked_s == pytest.approx(2 * MB, rel=0.01)


def test_a_writer_held_by_its_cpu_is_busy():
    """Half a second of computing per MB is no fault of the storage."""
    counters = saved(Scene(), lease=20 * MB, storage=20 * MB, num_bytes=20 * MB, cpu_s_per_mb=0.5)
    assert counters.busy_s == pytest.approx(19 * 0.5, rel=0.01)  # the first MB is before the first byte
    assert counters.blocked_s == pytest.approx(1.0, rel=0.01)


def test_renewals_tell_of_a_write_that_hangs():
    """Two renewals 5 s apart around a write that does not return: 5 s blocked, 0 bytes."""
    scene = Scene()
    throttle = scene.flush(rate=9 * MB)
    throttle.take(1)
    throttle.begin_blocked()
    before, _ = scene.desk.word(Action.RENEW)
    scene.clock.advance(5.0)
    after, _ = scene.desk.word(Action.RENEW)
    assert after.blocked_s - before.blocked_s == 5.0
    assert (after.done_bytes, after.throttled_s, after.busy_s) == (
        before.done_bytes,
        before.throttled_s,
        before.busy_s,
    )


def test_a_stream_without_descriptor_reports_progress_while_it_writes():
    """An object store's writer is not taken for one that hangs until its last byte."""
    scene = Scene()
    throttle = scene.flush(rate=4 * MB)
    stream = stream_into(SlowFile(scene.clock, 40 * MB), throttle)
    seen = []
    for _ in range(3):
        stream.write(bytes(MB))
        seen.append(scene.desk.word(Action.RENEW)[0].done_bytes)
    assert seen == [MB, 2 * MB, 3 * MB]
    stream.finish("f")
    assert throttle.counters().done_bytes == 3 * MB


# -- what the job can ------------------------------------------------------------------------------------------------


def test_what_a_job_can_write_is_unknown_before_its_first_save():
    """Absent, not 0 and not the lease."""
    scene = Scene()
    scene.register()
    assert asked_next(scene).max_bytes_per_s is None


def test_what_a_job_can_write_is_not_what_its_lease_was():
    """It wrote at 2 MB/s, and would have written at 20."""
    scene = Scene()
    saved(scene, lease=2 * MB, storage=20 * MB, num_bytes=40 * MB)
    assert asked_next(scene).max_bytes_per_s == pytest.approx(20 * MB, rel=0.02)


def test_what_a_job_can_write_counts_its_own_computing():
    """0.2 s of computing per MB beside a fast storage: 5 MB/s is all it has use for."""
    scene = Scene()
    saved(scene, lease=50 * MB, storage=1000 * MB, num_bytes=40 * MB, cpu_s_per_mb=0.2)
    assert asked_next(scene).max_bytes_per_s == pytest.approx(5 * MB, rel=0.05)


def test_a_slow_storage_lowers_it_slowly_and_a_fast_one_raises_it_at_once():
    """Others may have had the storage: one slow save does not keep the next one slow."""
    scene = Scene()
    saved(scene, lease=2 * MB, storage=20 * MB, num_bytes=40 * MB)
    figures = []
    for storage in (2 * MB, 28 * MB):
        asked = asked_next(scene)
        scene.say(grant)
        scene.begin_snapshot()
        throttle = scene.throttle
        throttle.set_rate(None)
        stream = stream_into(SlowFile(scene.clock, storage), throttle)
        stream.write(bytes(60 * MB))
        stream.finish("f")
        throttle.end()
        scene.desk.first_byte(5000)
        scene.end(replace(REPORT, num_bytes=60 * MB, counters=throttle.counters()))
        scene.say(noted)
        figures.append((asked.max_bytes_per_s, scene.speech.figures.max_bytes_per_s))
    (first, after_slow), (_, after_fast) = figures
    assert after_slow == pytest.approx(first - 0.3 * (first - 2 * MB), rel=0.01)
    assert after_fast == pytest.approx(28 * MB, rel=0.02)


@pytest.mark.parametrize(
    ("counters", "committed"),
    [
        (FlowCounters(done_bytes=5_000, throttled_s=9.0, blocked_s=0.5, busy_s=0.4), True),
        (FlowCounters(done_bytes=9 * MB, throttled_s=1.0, blocked_s=5.0, busy_s=5.0), False),
        (FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=60.0, busy_s=0.0), True),
    ],
)
def test_a_short_or_aborted_save_says_nothing_about_speed(counters, committed):
    """Less than a second in write and CPU, or not committed, or without bytes."""
    scene = Scene()
    scene.flush()
    reason = None if committed else "lease_lost"
    scene.end(replace(REPORT, counters=counters, committed=committed, reason=reason))
    assert scene.speech.figures.max_bytes_per_s is None


# -- age and lead ----------------------------------------------------------------------------------------------------


def test_age_counts_from_the_start_of_an_attempt_that_has_nothing_durable():
    """All its work would be lost."""
    scene = Scene()
    scene.register()
    scene.clock.advance(60.0)
    assert scene.say(wait).age_s == 60.0


def test_age_counts_from_the_restore():
    """What was loaded is durable."""
    scene = Scene()
    scene.register()
    scene.clock.advance(50.0)
    scene.desk.restored(12, load_s=3.0, rolled_back=False)
    scene.clock.advance(10.0)
    assert scene.say(wait).age_s == 10.0


def test_age_counts_from_the_snapshot_of_the_newest_durable_save():
    """Not from its end, and not from a later save that failed."""
    scene = Scene()
    scene.arm()
    scene.begin_snapshot()
    snapshot_s = scene.clock.now()
    scene.clock.advance(3.0)
    scene.desk.first_byte(5000)
    scene.end()
    scene.say(noted)
    asked = asked_next(scene)
    assert asked.age_s == scene.clock.now() - snapshot_s
    scene.say(grant)
    scene.begin_snapshot()
    scene.desk.first_byte(5000)
    scene.end(replace(REPORT, committed=False, reason="enospc"))
    scene.say(noted)
    assert asked_next(scene).age_s == scene.clock.now() - snapshot_s


def test_lead_time_is_a_guess_at_first_and_then_what_was_measured():
    """From the right to go on to the first byte, as in the save before."""
    scene = Scene()
    scene.register()
    scene.clock.advance(60.0)
    assert scene.say(grant).ready_in_s == 1.0
    scene.clock.advance(2.5)
    scene.begin_snapshot()
    scene.clock.advance(4.0)
    scene.desk.first_byte(5000)
    scene.say(lambda seq: grant(seq, rate=9_000))
    scene.end()
    scene.say(noted)
    assert asked_next(scene).ready_in_s == 6.5


def test_lead_time_of_a_snapshot_that_waits_is_what_is_left_of_it():
    """The lease lapsed before the first byte: the work that was done meanwhile is not forecast again, nor forgotten."""
    scene = Scene()
    scene.register()
    scene.speech._lead_s = 40.0
    scene.clock.advance(60.0)
    scene.say(lambda seq: grant(seq, ttl_s=10.0))
    scene.begin_snapshot()
    scene.clock.advance(10.0)
    asked = scene.say(grant)
    assert (asked.ready_in_s, asked.started) == (30.0, False)
    scene.clock.advance(28.0)
    scene.desk.first_byte(5000)
    assert scene.say(grant).lead_s == 38.0


def test_a_first_byte_in_hand_is_said_by_nothing_but_a_lead_time_of_zero():
    """A lead time that was measured as nothing is still one."""
    scene = Scene()
    scene.register()
    scene.speech._lead_s = 1e-9
    scene.clock.advance(60.0)
    assert scene.say(wait).ready_in_s > 0.0


def test_the_tenant_is_told_with_the_registration():
    """On whose account this job writes."""
    assert Scene().say(lambda seq: noted(seq, plan=plan())).tenant == "red"
