"""Where one writer is slow the others are asked, on the ledger: their renewals are answered, so that they report."""

from collections.abc import Iterable

from support.desk import Desk, Talker

T = 1000.0
HALF = 500


class Pair:
    """Two writers of half the pool each, whose habits are known: both have filled their grants twice."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.jobs = [self.desk.writer(number, T, max_bytes_per_s=HALF, num_bytes=10**6) for number in (1, 2)]
        self.totals = {job.uid: [0, 0.0, 0.0] for job in self.jobs}
        for now_s in (T + 5, T + 10, T + 15):
            self.desk.tick(now_s)
            for job in self.jobs:
                self.report(job, now_s, HALF, throttled_s=2.5)

    def report(self, job: Talker, now_s: float, got: int, *, throttled_s: float = 0.0) -> None:
        """The writer's next renewal, `got` bytes/s for five seconds; the rest of the time it was blocked."""
        job.hear()
        totals = self.totals[job.uid]
        totals[0] += 5 * got
        totals[1] += throttled_s
        totals[2] += 5.0 - throttled_s
        done, throttled, blocked = totals
        job.renew(now_s, held=HALF, done_bytes=done, throttled_s=throttled, blocked_s=blocked)

    def held(self) -> list[bool]:
        """Whose renewal has no answer yet."""
        return [job.answer is None for job in self.jobs]


def _is_lowered(desk: Desk, now_s: float) -> bool:
    return desk.ledger.pool_view(now_s).budget_bytes_per_s < 2 * HALF


def test_one_slow_writer_has_the_other_report_at_once() -> None:
    """Half of the pool shows nothing yet; the other half is asked, and the cap falls with what it says."""
    pair = Pair()
    first, second = pair.jobs
    assert pair.held() == [True, True]
    pair.report(first, T + 18, 200)
    assert not _is_lowered(pair.desk, T + 18)
    assert pair.held() == [True, False]
    pair.report(second, T + 18.1, 200)
    assert _is_lowered(pair.desk, T + 18.1)


def test_nobody_is_asked_twice_within_a_round() -> None:
    """A single slow node must not have the whole pool report without end."""
    pair = Pair()
    first, second = pair.jobs
    pair.report(first, T + 18, 200)
    pair.report(second, T + 18.1, HALF, throttled_s=2.5)
    pair.report(first, T + 23, 200)
    assert pair.held()[1]


def test_after_a_fall_renewals_are_held_for_two_seconds() -> None:
    """And for five again once no report has lowered the cap for a while."""
    pair = Pair()
    _all_report(pair, T + 20, 200)
    assert _is_lowered(pair.desk, T + 20)
    _all_report(pair, T + 22, 200)
    assert _held_until(pair) == {2.0}
    pair.desk.tick(T + 24)
    _all_report(pair, T + 30, 200)
    assert _held_until(pair) == {5.0}


def _all_report(pair: Pair, now_s: float, got: int) -> None:
    for job in pair.jobs:
        pair.report(job, now_s, got)


def _held_until(pair: Pair) -> Iterable[float]:
    jobs = pair.desk.ledger._state.jobs.values()
    return {job.held.until_s - job.held.received_s for job in jobs if job.held is not None}
