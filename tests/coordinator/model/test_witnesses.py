"""What a pool's cap falls to: whose word counts for what when storage is found slow."""

import pytest

from support.capacity_pool import CEILING, RENEWAL_S, Pool, report


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_who_has_not_reported_yet_is_counted_like_the_others(pool: Pool) -> None:
    """The finding comes with the majority; the cap is what all get, not what the first ones have told."""
    pool.known(*"abcde", granted=CEILING // 5)
    slow = report(CEILING // 5, 0.4 * CEILING / 5)
    cap = pool.round(a=slow, b=slow, c=slow)
    assert cap == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)


def test_later_reports_of_the_same_round_refine_the_finding(pool: Pool) -> None:
    """Two of five get more than the three that reported first: the cap follows, in both directions."""
    pool.known(*"abcde", granted=CEILING // 5)
    slow = report(CEILING // 5, 0.4 * CEILING / 5)
    pool.round(a=slow, b=slow, c=slow)
    pool.capacity.reported("d", report(CEILING // 5, 160_000, time_s=7.0), pool.now_s + 2.0)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * (4 * 80_000 + 160_000), rel=0.01)


def test_grants_that_are_no_more_prove_nothing(pool: Pool) -> None:
    """Who was paused by the fall must not make the next reports look as if they were all there is."""
    pool.known(*"abcd", granted=CEILING // 4)
    slow = report(CEILING // 4, 0.4 * CEILING / 4)
    cap = pool.round(a=slow, b=slow, c=slow, d=slow)
    pool.now_s += 2.5
    for uid, granted in (("a", 250_000), ("b", 158_000), ("c", 0), ("d", 0)):
        pool.capacity.reported(uid, report(granted, 0.4 * granted, time_s=2.5), pool.now_s)
    assert pool.capacity.cap_bytes_per_s == cap


def test_a_report_of_a_smaller_grant_refines_nothing(pool: Pool) -> None:
    """The fall has lowered it: what its writer got of it is no measure of what it got before."""
    pool.known("a", "b", "c", granted=CEILING // 3)
    slow = report(CEILING // 3, 0.4 * CEILING / 3)
    cap = pool.round(a=slow, b=slow)
    pool.capacity.reported("c", report(10_000, 10_000, time_s=8.0), pool.now_s + 0.2)
    assert pool.capacity.cap_bytes_per_s == cap


def test_what_a_writer_got_of_a_smaller_grant_is_the_least_that_it_got(pool: Pool) -> None:
    """It was raised while it wrote, so that its report is of a little less than its grant, and storage gave it all."""
    pool.known(a=600_000, b=400_000)
    pool.capacity.reported("a", report(600_000, 240_000), pool.now_s + RENEWAL_S)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)
    pool.capacity.reported("b", report(390_000, 390_000, time_s=5.1), pool.now_s + RENEWAL_S + 0.1)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * (240_000 + 390_000), rel=0.01)


def test_a_report_of_the_time_before_a_finding_finds_nothing_more(pool: Pool) -> None:
    """It was granted more than there is now, and gets less of it: that is known already."""
    pool.known("a", "b", granted=CEILING // 2)
    slow = report(CEILING // 2, 0.4 * CEILING / 2)
    cap = pool.round(a=slow, b=slow)
    pool.capacity.granted("a", cap // 4, pool.now_s)
    pool.capacity.reported("a", report(cap // 4, cap / 10), pool.now_s + 0.1)
    assert pool.capacity.cap_bytes_per_s == cap


def test_a_new_grant_counts_before_its_writer_reports_of_it(pool: Pool) -> None:
    """Of two writers one was raised and one has just begun: the third, which finds storage slow, speaks for both."""
    pool.known(a=400_000, b=200_000)
    pool.capacity.granted("b", 300_000, pool.now_s)
    pool.capacity.granted("new", 300_000, pool.now_s)
    pool.capacity.reported("a", report(400_000, 160_000), pool.now_s + RENEWAL_S)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)


def test_a_grant_that_came_after_the_witness_had_written_does_not_count(pool: Pool) -> None:
    """What storage did before is no measure of it."""
    pool.known(a=600_000, b=400_000)
    pool.capacity.granted("b", 400_000, pool.now_s)
    pool.capacity.granted("b", 1_000, pool.now_s + RENEWAL_S - 0.1)
    pool.capacity.reported("a", report(600_000, 240_000), pool.now_s + RENEWAL_S)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)


def test_who_says_itself_what_it_got_is_believed(pool: Pool) -> None:
    """A small writer gets all that it is used to while the large one beside it, the witness, gets two fifths."""
    pool.known(a=700_000, b=100_000)
    pool.now_s += RENEWAL_S
    pool.capacity.reported("b", report(200_000, 150_000), pool.now_s)
    pool.capacity.reported("a", report(700_000, 280_000), pool.now_s + 0.1)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * (280_000 + 150_000), rel=0.01)


@pytest.mark.parametrize(("left_s", "cap_share"), [(0.0, 0.4), (2.0, 0.48), (5.0, 0.6)])
def test_who_left_counts_for_the_time_that_it_wrote_beside_the_witness(
    pool: Pool, left_s: float, cap_share: float
) -> None:
    """Saves one after another: the one before is no part of what storage did while the next was written."""
    pool.known(a=500_000, b=500_000)
    pool.capacity.granted("a", 500_000, pool.now_s)
    pool.capacity.reported("a", report(500_000, 200_000, time_s=max(2.0, left_s)), pool.now_s + left_s)
    pool.capacity.left("a")
    pool.capacity.reported("b", report(1_000_000, 400_000), pool.now_s + RENEWAL_S)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(1.02 * cap_share * CEILING, rel=0.01)
