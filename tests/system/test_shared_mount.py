"""Eight real jobs on a real shared mount (rclone, FUSE) whose speed is cut to a quarter and given back as they train.

Every job wishes to save each two seconds, far more often than the storage can take: what it is told follows from the
price, 8 x 48 MB over what may be granted. One story, played once; each test looks at a part of it. What must happen
within some time is counted in saves, or in time in which bytes arrive, so that a busy machine changes nothing.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from rampmeter_coordinator.demo.troupe import Actor, Troupe
from support import mounted_training
from support.pool_watch import Moment, Watch, table
from support.servers import serving
from support.shared_mount import SharedMount, shared_mount

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.debian("rclone"),
    pytest.mark.debian("fuse3", binary="fusermount3"),
    pytest.mark.skipif(
        not Path("/dev/fuse").exists(), reason="there is no /dev/fuse: no shared file system can be mounted"
    ),
]

NUM_JOBS = 8
JOBS = [f"job{number}" for number in range(NUM_JOBS)]
STATE_BYTES = 48_000_000
FAST = 40_000_000
SLOW = FAST // 4
BUDGET = 32_000_000
"""u x FAST: what may be granted of the fast storage."""

BURST_BYTES = 8_000_000
"""rclone lets 4 MiB through at once after a pause."""

WISH_S = 2.0
TOLD_S = NUM_JOBS * STATE_BYTES / BUDGET
"""12 s: the interval at which all that is asked fits the budget of the fast storage."""

TOLERANCE = 1.25
"""More than the dead band: what a job is told stays within 1.2 x what the price says, from whichever side it came."""

SAVES = 3
WRITING_S = 90.0
SLOW_WRITING_S = 10.0
LIMIT_S = 120.0
"""Ends a phase whose condition never comes true; the tests then say what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """settled: on fast storage; cut: the limit falls; slowed: the pool has noticed; raised: the limit is back."""

    watch: Watch
    settled: Moment
    cut: Moment
    slowed: Moment
    raised: Moment
    back: Moment
    restored_step: int | None


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Plays it all. A phase ends when what it waits for is true, or when it is too late for it."""
    where = tmp_path_factory.mktemp("shared")
    with (
        serving(where, "--fresh", RAMPMETER_CAPACITY=f"{FAST // 10**6}MB/s") as coordinator,
        shared_mount(where, FAST) as mount,
    ):
        with Troupe() as troupe:
            actors = [_start(troupe, mount, where, coordinator.url, job) for job in JOBS]
            watch = Watch(coordinator.url, mount.backing, lambda: [troupe.check(actor) for actor in actors])
            moments = _play(watch, mount)
        restored_step = mounted_training.restored_step(mount.path / JOBS[0], STATE_BYTES)
    return Story(watch=watch, **moments, restored_step=restored_step)


def _start(troupe: Troupe, mount: SharedMount, where: Path, url: str, job: str) -> Actor:
    options = {"coordinator": url, "num_gpus": 8, "interval_max_s": WISH_S}
    return mounted_training.start(troupe, mount.path / job, where / f"{job}.log", STATE_BYTES, **options)


def _play(watch: Watch, mount: SharedMount) -> dict[str, Moment]:
    settled = watch.until(_is_settled, LIMIT_S)
    assert _is_settled(settled), table(watch.moments)
    mount.limit(SLOW)
    cut = watch.look()
    slowed = watch.until(lambda now: _fits(now, settled) or max(now.saves_since(cut)) > SAVES, LIMIT_S)
    watch.until(
        lambda now: min(now.saves_since(cut)) >= 1 and watch.writing_s(slowed, now) >= SLOW_WRITING_S,
        LIMIT_S,
    )
    mount.limit(FAST)
    raised = watch.look()
    back = watch.until(
        lambda now: _is_back(now) or watch.writing_s(raised, now) > WRITING_S, WRITING_S + LIMIT_S
    )
    return {"settled": settled, "cut": cut, "slowed": slowed, "raised": raised, "back": back}


def _is_settled(now: Moment) -> bool:
    """All have saved twice, so that it is known what they can do, and all are told what the price says."""
    told = [TOLD_S / TOLERANCE <= interval_s <= TOLD_S * TOLERANCE for interval_s in now.interval_s.values()]
    return len(told) == NUM_JOBS and all(told) and min(now.num_saves.values()) >= 2


def _fits(now: Moment, settled: Moment) -> bool:
    return min(now.stretch_since(settled)) >= 2.0 and now.granted_bytes_per_s <= 1.3 * SLOW


def _is_back(now: Moment) -> bool:
    """Everybody is told what the price of the fast storage says, and what may be granted is granted."""
    return max(now.interval_s.values()) <= TOLD_S * TOLERANCE and now.granted_bytes_per_s >= 0.9 * BUDGET


def test_the_storage_really_was_slow(story: Story) -> None:
    """As much arrived in the backing directory as the limit lets through, before and after the cut."""
    for begin, end, limit in ((story.cut, story.raised, SLOW), (story.raised, story.back, FAST)):
        num_bytes = end.written_bytes - begin.written_bytes
        assert num_bytes <= 1.1 * limit * (end.at_s - begin.at_s) + BURST_BYTES, table(story.watch.moments)


def test_intervals_lengthen_and_grants_fall_within_three_saves_of_every_job(story: Story) -> None:
    """All are told at least twice the interval, and what is granted in sum is at most 1.3 x what storage does."""
    assert _fits(story.slowed, story.settled), table(story.watch.moments)
    assert max(story.slowed.saves_since(story.cut)) <= SAVES


def test_what_is_granted_stays_at_what_storage_does(story: Story) -> None:
    """From then on until the storage is fast again: at most 1.3 x on average, and not next to nothing."""
    slow = story.watch.between(story.slowed, story.raised)[:-1]
    took_s = slow[-1].at_s - slow[0].at_s
    granted_bytes = sum(a.granted_bytes_per_s * (b.at_s - a.at_s) for a, b in pairwise(slow))
    assert granted_bytes <= 1.3 * SLOW * took_s, table(story.watch.moments)
    assert slow[-1].written_bytes - slow[0].written_bytes >= 0.4 * SLOW * took_s, table(story.watch.moments)


def test_both_are_back_within_90_s_of_writing(story: Story) -> None:
    """Counted is the time in which bytes arrive."""
    assert _is_back(story.back), table(story.watch.moments)
    assert story.watch.writing_s(story.raised, story.back) <= WRITING_S


def test_nobody_starves(story: Story) -> None:
    """Everybody saves while storage is slow, and as it recovers; nothing unsaved gets older than three intervals.

    From two on a job is passed by nobody; the third is for those who are armed already.
    """
    assert min(story.raised.saves_since(story.cut)) >= 1, table(story.watch.moments)
    assert min(story.back.saves_since(story.raised)) >= 1, table(story.watch.moments)
    seen = story.watch.between(story.settled, story.back)
    longest_s = max(max(moment.interval_s.values()) for moment in seen)
    assert max(max(moment.unsaved_s.values()) for moment in seen) <= 3.0 * longest_s, table(seen)


def test_what_was_written_to_the_mount_can_be_restored(story: Story) -> None:
    """Read back through it, every block verified."""
    assert story.restored_step is not None
    assert story.restored_step > 0
