"""When a writer without a trainer ends itself: judged by what it does, never while somebody watches over it."""

from rampmeter.daemon.orphan import STILL_S, STOPPED_S, Orphan

LOOK_S = 0.02


def looks(
    orphan: Orphan, begin_s: float, end_s: float, *, work_s: float = 0.0, may_write: bool = True
) -> float:
    """Look every 20 ms, each time with so much more work done; when it is stuck, infinity if never."""
    now_s, worked_s = begin_s, 1.0
    while now_s < end_s:
        now_s, worked_s = now_s + LOOK_S, worked_s + work_s
        if orphan.is_stuck(now_s, worked_s, may_write=may_write):
            return now_s
    return float("inf")


def test_one_that_hangs_is_stuck_whatever_it_may_write() -> None:
    """Without a coordinator its right has no end; it is gone before anybody has waited for ten seconds."""
    stuck_s = looks(Orphan(0.0), 0.0, 100.0)
    assert STILL_S <= stuck_s <= STILL_S + 2 * LOOK_S < 10.0


def test_one_that_works_may_finish() -> None:
    """However slowly: a large write or a long plan is no hang."""
    assert looks(Orphan(0.0), 0.0, 1000.0, work_s=2e-6) == float("inf")


def test_the_noise_of_the_clocks_is_no_work() -> None:
    """What two readings differ by goes up and down and grows by nothing."""
    orphan = Orphan(0.0)
    found = [orphan.is_stuck(look * LOOK_S, 1.0 + 1e-6 * (look % 3), may_write=True) for look in range(400)]
    assert found.index(True) * LOOK_S <= STILL_S + 2 * LOOK_S


def test_one_without_a_right_has_the_time_for_a_chunk() -> None:
    """Also if it goes on working."""
    stuck_s = looks(Orphan(0.0), 0.0, 100.0, work_s=1.0, may_write=False)
    assert STOPPED_S <= stuck_s <= STOPPED_S + 2 * LOOK_S


def test_the_time_with_a_trainer_does_not_count() -> None:
    """That one knows itself how long it waits."""
    orphan = Orphan(0.0)
    orphan.has_a_trainer(1000.0)
    assert looks(orphan, 1000.0, 1000.0 + STILL_S - 1.0) == float("inf")
    orphan.has_a_trainer(2000.0)  # it could not be looked up for a moment
    assert looks(orphan, 2000.0, 2000.0 + STILL_S - 1.0) == float("inf")


def test_a_process_that_was_stopped_did_not_hang() -> None:
    """Nor did one on a machine that slept: it goes on where it was."""
    orphan = Orphan(0.0)
    assert not orphan.is_stuck(0.02, 1.0, may_write=True)
    assert not orphan.is_stuck(3600.0, 1.0, may_write=True)
