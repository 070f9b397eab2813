"""Who is cut or revoked for standing still, and who is not."""

import pytest

from rampmeter_coordinator.model.progress import Progress, Verdict

GB = 10**9
RENEWAL_S = 5.0
CEILING = 100 * GB


class Writers:
    """Writers of one pool that renew every five seconds, one after the other."""

    def __init__(self, *names: str, num_bytes: int | None = 100 * GB) -> None:
        self.progress = {name: Progress() for name in names}
        self.done = dict.fromkeys(names, 0)
        self.rates = dict.fromkeys(names, 10 * GB)
        self.num_bytes = num_bytes
        self.now_s = 1000.0

    def round(self, *moving: str) -> dict[str, Verdict]:
        """Everybody renews once, those named with new bytes."""
        verdicts = {}
        for name, progress in self.progress.items():
            self.now_s += RENEWAL_S / len(self.progress)
            self.done[name] += GB if name in moving else 0
            verdicts[name] = progress.renewed(
                done_bytes=self.done[name],
                num_bytes=self.num_bytes,
                bytes_per_s=self.rates[name],
                now_s=self.now_s,
                others=[
                    other for name_, other in self.progress.items() if name_ != name and self.rates[name_]
                ],
            )
        return verdicts

    def until(self, name: str, verdict: Verdict, *moving: str, limit_s: float = 3600.0) -> float:
        """Seconds until this writer gets this verdict; infinite if it does not within the limit."""
        begun_s = self.now_s
        while self.now_s < begun_s + limit_s:
            if self.round(*moving)[name] is verdict:
                return self.now_s - begun_s
        return float("inf")


def test_who_moves_is_left_alone() -> None:
    """However little: slow writers are the business of the learned cap."""
    writers = Writers("a", "b")
    assert all(set(writers.round("a", "b").values()) == {Verdict.MOVES} for _ in range(100))


def test_a_hung_writer_is_cut_within_20_seconds_and_keeps_a_hundredth() -> None:
    """Its share is back in use long before it is revoked."""
    writers = Writers("hung", "b", "c")
    writers.round("hung", "b", "c")
    assert writers.progress["hung"].maximum(CEILING) is None
    assert writers.until("hung", Verdict.CUT, "b", "c") <= 20.0
    assert writers.progress["hung"].maximum(CEILING) == CEILING // 100


def test_one_renewal_without_a_byte_cuts_nobody() -> None:
    """Two in a row do: a file may be closed, a rank may be late."""
    writers = Writers("a", "b")
    for _ in range(20):
        assert writers.round("a", "b")["a"] is Verdict.MOVES
        assert writers.round("b")["a"] is Verdict.MOVES


def test_renewals_that_follow_each_other_at_once_cut_nobody() -> None:
    """The rate changed twice while the first bytes were on their way."""
    progress = Progress()
    for now_s in (0.0, 0.21, 0.22, 0.23):
        verdict = progress.renewed(done_bytes=0, num_bytes=GB, bytes_per_s=80_000_000, now_s=now_s, others=[])
        assert verdict is Verdict.MOVES


def test_a_byte_ends_the_cut() -> None:
    """Whoever moves again has its rate again."""
    writers = Writers("a", "b")
    writers.round("a", "b")
    writers.until("a", Verdict.CUT, "b")
    assert writers.round("a", "b")["a"] is Verdict.MOVES
    assert writers.progress["a"].maximum(CEILING) is None


def test_a_hung_writer_is_revoked_after_a_minute() -> None:
    """Ten seconds of its bytes were left: three times that is less than a minute."""
    writers = Writers("hung", "b")
    writers.round("hung", "b")
    assert 60.0 <= writers.until("hung", Verdict.REVOKED, "b") <= 75.0


def test_a_long_write_has_three_times_what_it_should_take() -> None:
    """990 GB at 10 GB/s were left when it stopped; what it is cut to does not lengthen that."""
    writers = Writers("hung", "b", num_bytes=1000 * GB)
    writers.round("hung", "b")
    writers.until("hung", Verdict.CUT, "b")
    writers.rates["hung"] = CEILING // 100
    assert 3 * 99.0 - 20.0 <= writers.until("hung", Verdict.REVOKED, "b") <= 3 * 99.9 + 15.0


def test_unknown_bytes_mean_a_minute() -> None:
    """Nothing is expected of a save whose size nobody told."""
    writers = Writers("hung", "b", num_bytes=None)
    writers.round("hung", "b")
    assert 60.0 <= writers.until("hung", Verdict.REVOKED, "b") <= 75.0


def test_time_at_rate_0_is_no_missing_progress() -> None:
    """A paused writer cannot write."""
    writers = Writers("paused", "b")
    writers.round("paused", "b")
    writers.rates["paused"] = 0
    assert writers.until("paused", Verdict.CUT, "b", limit_s=200.0) == float("inf")
    writers.rates["paused"] = 10 * GB
    assert writers.round("b")["paused"] is Verdict.MOVES


@pytest.mark.parametrize("stall_s", [15.0, 120.0, 290.0])
def test_if_nobody_moves_it_is_storage(stall_s: float) -> None:
    """Nobody is cut or revoked, and when it is over nobody has less patience left."""
    writers = Writers("a", "b", "c")
    writers.round("a", "b", "c")
    for _ in range(int(stall_s / RENEWAL_S)):
        assert set(writers.round().values()) == {Verdict.MOVES}
    assert 60.0 <= writers.until("a", Verdict.REVOKED, "b", "c") <= 75.0


def test_a_stall_that_begins_between_two_renewals_cuts_nobody() -> None:
    """The last bytes of one may have been reported after the last bytes of another, and gone before."""
    writers = Writers("a", "b")
    writers.round("a", "b")
    writers.round("b")
    for _ in range(20):
        assert set(writers.round().values()) == {Verdict.MOVES}


@pytest.mark.parametrize(
    ("stopped_s", "since_s", "proves"), [(9.0, 14.0, True), (12.0, 14.0, False), (9.0, 16.0, False)]
)
def test_bytes_that_may_have_gone_before_prove_nothing(
    stopped_s: float, since_s: float, proves: bool
) -> None:
    """Of a writer that was seen to move between 10 and 15: news only if it began later, and was heard of since."""
    assert Progress(moved_from_s=10.0, moved_s=15.0).moved_since(stopped_s, since_s) is proves


def test_who_writes_alone_is_cut_and_not_revoked() -> None:
    """Storage or writer: whoever starts with what it gives up will show it."""
    writers = Writers("hung")
    writers.round("hung")
    assert writers.until("hung", Verdict.CUT) <= 15.0
    assert writers.until("hung", Verdict.REVOKED, limit_s=280.0) == float("inf")
    writers.progress["b"], writers.done["b"], writers.rates["b"] = Progress(), 0, 10 * GB
    assert writers.until("hung", Verdict.REVOKED, "b") <= 75.0


def test_a_pool_of_hung_writers_is_not_stuck_for_ever() -> None:
    """After five minutes they are cut although nobody moves: somebody else may try."""
    writers = Writers("a", "b")
    writers.round("a", "b")
    assert 290.0 <= writers.until("a", Verdict.CUT) <= 310.0
    assert writers.until("a", Verdict.REVOKED, limit_s=600.0) == float("inf")


def test_a_rate_too_small_to_show_is_no_standstill() -> None:
    """Bytes are counted by windows of up to 16 MiB: at 1 MB/s that takes a while."""
    writers = Writers("slow", "b")
    writers.rates["slow"] = 10**6
    writers.round("slow", "b")
    assert 16.0 <= writers.until("slow", Verdict.CUT, "b") <= 30.0


def test_a_lease_that_never_moved_is_judged_like_one_that_stopped() -> None:
    """From its first renewal on."""
    writers = Writers("b")
    writers.round("b")
    writers.progress["hung"], writers.done["hung"], writers.rates["hung"] = Progress(), 0, 10 * GB
    assert writers.until("hung", Verdict.CUT, "b") <= 25.0
    assert writers.until("hung", Verdict.REVOKED, "b") <= 75.0


def test_a_restart_of_the_clock_starts_anew() -> None:
    """A record whose last renewal is forgotten: the next one is a beginning."""
    progress = Progress(done_bytes=5 * GB, is_cut=True, num_still=4, still_s=500.0)
    verdict = progress.renewed(
        done_bytes=5 * GB, num_bytes=None, bytes_per_s=GB, now_s=3.0, others=[Progress(moved_s=2.0)]
    )
    assert verdict is Verdict.MOVES


def test_a_lease_that_ended_wrote_after_its_grant_or_its_last_renewal() -> None:
    """What was under way when another stopped shows nothing of the time after it."""
    short, renewed = Progress(), Progress()
    short.ended(GB, granted_s=10.0, now_s=13.0, goes_on=False)
    assert (short.moved_since(9.0, since_s=12.0), short.moved_since(11.0, since_s=12.0)) == (True, False)
    renewed.renewed(done_bytes=GB, num_bytes=None, bytes_per_s=GB, now_s=12.0, others=[])
    renewed.ended(2 * GB, granted_s=5.0, now_s=13.0, goes_on=False)
    assert renewed.moved_since(11.0, since_s=12.0)


def test_bytes_of_an_earlier_lease_are_not_those_of_one_that_ended() -> None:
    """It went on with a save, and was released before it was heard of."""
    progress = Progress()
    progress.ended(GB, granted_s=10.0, now_s=13.0, goes_on=True)
    assert not progress.moved_since(9.0, since_s=12.0)


def test_a_lease_that_ended_without_a_new_byte_shows_nothing() -> None:
    """Its save failed: perhaps on the same storage."""
    progress = Progress()
    progress.renewed(done_bytes=GB, num_bytes=None, bytes_per_s=GB, now_s=10.0, others=[])
    progress.ended(GB, granted_s=5.0, now_s=13.0, goes_on=False)
    assert not progress.moved_since(9.0, since_s=12.0)
