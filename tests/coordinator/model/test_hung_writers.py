"""Writers that stand still, on the ledger: their rate, who has the rest, and when the lease is taken back."""

from rampmeter.core.messages import Gone, GoneReason, Grant, Outcome, RateReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk, Talker

GB = 10**9
POOL = PoolConfig(name="pool", capacity_bytes_per_s=100 * GB, utilisation=1.0)
HALF = 50 * GB
STEP_S = 5.5


class Pair:
    """Two writers, of half the pool each, that renew again and again; the second stands still after `done_bytes`."""

    def __init__(self, done_bytes: int = 10 * GB, num_bytes: int = 1000 * GB) -> None:
        self.desk = Desk(POOL)
        self.moving = self.desk.writer(1, 0.0, max_bytes_per_s=HALF, num_bytes=10**15)
        self.still = self.desk.writer(2, 0.0, max_bytes_per_s=HALF, num_bytes=num_bytes)
        self.done_bytes = done_bytes
        self.now_s = 0.0

    def until_gone(self, limit_s: float) -> float:
        """Seconds until the lease of the second is taken back; infinite if it is not within the limit."""
        while self.now_s < limit_s:
            self.step()
            if isinstance(self.still.last, Gone):
                return self.now_s
        return float("inf")

    def step(self) -> None:
        """Both renew once more."""
        self.now_s += STEP_S
        self.desk.tick(self.now_s)
        _renew(self.moving, self.now_s, int(self.now_s * GB))
        _renew(self.still, self.now_s, self.done_bytes)


def _renew(writer: Talker, now_s: float, done_bytes: int) -> None:
    writer.hear()
    writer.renew(now_s, done_bytes=done_bytes)


def test_a_hung_writer_keeps_a_hundredth_and_others_have_the_rest() -> None:
    """Within half a minute, and it is told why."""
    pair = Pair()
    third = pair.desk.known(3, 0.0)
    third.ask(0.0, ready_in_s=0.0)
    while pair.now_s < 30.0:
        pair.step()
        third.hear()
        if isinstance(third.last, Grant):
            third.renew(pair.now_s)
    assert pair.desk.rates(pair.now_s) == {1: HALF, 2: GB, 3: 49 * GB}
    reasons = {int(view.job_uid, 16): view.reason for view in pair.desk.ledger.lease_views(pair.now_s)}
    assert reasons[2] is RateReason.NO_PROGRESS


def test_who_had_no_rate_until_now_has_not_stood_still() -> None:
    """It waits for room with a snapshot in hand, has a rate at last, and renews before its first byte is out."""
    desk, num_bytes = Desk(POOL), 1000 * GB
    first, second = desk.writer(1, 0.0, num_bytes=num_bytes), desk.known(2, 0.0, num_bytes=num_bytes)
    first.renew(0.0)
    second.ask(0.0, ready_in_s=0.0)
    desk.tick(9.5)
    second.hear()
    second.renew(9.5)
    first.hear()
    first.release(14.0)
    for now_s in (14.01, 14.02, 14.03, 14.04):
        second.hear()
        second.renew(now_s)
    assert desk.rates(14.04) == {2: 100 * GB}


def test_the_lease_of_a_hung_writer_is_taken_back() -> None:
    """After three times what the rest of its bytes should have taken: 990 GB at 50 GB/s."""
    pair = Pair()
    assert 59.4 <= pair.until_gone(200.0) <= 60.0 + 4 * STEP_S
    assert isinstance(pair.still.last, Gone)
    assert pair.still.last.reason is GoneReason.NO_PROGRESS


def test_a_save_whose_bytes_are_all_written_is_left_to_commit() -> None:
    """However long that takes: a tail is no missing progress."""
    assert Pair(done_bytes=10 * GB, num_bytes=10 * GB).until_gone(600.0) == float("inf")


def test_short_saves_of_others_show_that_the_storage_works() -> None:
    """Each begins and ends between two renewals of the hung one: its lease is taken back all the same."""
    assert 60.0 <= _gone_beside_short_saves(num_bytes=10**11) <= 60.0 + 4 * STEP_S


def test_short_saves_that_wrote_nothing_show_nothing() -> None:
    """All of them fail: it is the storage."""
    assert _gone_beside_short_saves(num_bytes=0) == float("inf")


def test_a_save_that_is_long_over_is_nobody_beside_a_hung_writer() -> None:
    """Alone it is cut, so that somebody else may try."""
    desk = Desk(POOL)
    other = desk.writer(2, 0.0, num_bytes=GB)
    other.release(1.0)
    hung = desk.writer(1, 2.0, max_bytes_per_s=HALF, num_bytes=100 * GB)
    for number in range(6):
        now_s = 3.0 + number * STEP_S
        desk.tick(now_s)
        hung.hear()
        hung.renew(now_s, done_bytes=10 * GB)
    assert desk.rates(now_s) == {1: GB}


def _gone_beside_short_saves(num_bytes: int, limit_s: float = 200.0) -> float:
    """Seconds until the lease of a hung writer is taken back; another job saves so much between its renewals."""
    desk = Desk(POOL)
    hung, other = desk.writer(1, 0.0, max_bytes_per_s=HALF, num_bytes=100 * GB), desk.known(2, 0.0)
    now_s = 0.0
    while now_s < limit_s:
        hung.hear()
        if isinstance(hung.last, Gone):
            return now_s
        hung.renew(now_s, done_bytes=10 * GB)
        other.ask(now_s + 1.0, ready_in_s=0.0)
        assert isinstance(other.hear(), Grant)
        other.ready(now_s + 1.0)
        outcome = Outcome.COMMITTED if num_bytes else Outcome.FAILED
        other.release(now_s + 3.5, outcome, done_bytes=num_bytes)
        now_s += STEP_S
        desk.tick(now_s)
    return float("inf")
