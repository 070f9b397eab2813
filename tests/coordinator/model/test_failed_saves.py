"""Saves that failed are counted by reason, once each, whatever message tells of them first."""

from rampmeter.core.messages import FailReason, Outcome
from support.desk import Desk

T = 1000.0


def failed(desk: Desk) -> dict[str, int]:
    """The reasons that have been counted."""
    return {reason: num for reason, num in desk.ledger.totals.failed_saves.items() if num}


def test_a_release_tells_of_its_failure_at_once_and_the_heartbeat_after_it_counts_no_other() -> None:
    """Both carry the total of the attempt: one failure, with the reason in the job's row."""
    desk = Desk()
    job = desk.writer(1, T)
    job.release(T + 1, Outcome.FAILED, num_failed=1, last_failure=FailReason.ENOSPC)
    assert failed(desk) == {"enospc": 1}
    job.heartbeat(T + 2, num_failed=1, last_failure=FailReason.ENOSPC)
    assert failed(desk) == {"enospc": 1}
    assert desk.ledger.job_views(T + 2)[0].last_failure is FailReason.ENOSPC


def test_failures_without_a_lease_are_told_by_heartbeats() -> None:
    """A save that was not attempted, or was written at the safe rate, has no release: totals lose none."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T + 1, num_failed=1, last_failure=FailReason.EIO)
    job.heartbeat(T + 2, num_failed=3, last_failure=FailReason.ENOMEM)
    assert failed(desk) == {"eio": 1, "enomem": 2}


def test_a_new_attempt_counts_from_nothing() -> None:
    """Its first failure is a new one, although the attempt before had as many."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T + 1, num_failed=1, last_failure=FailReason.EIO)
    job.attempt, job.seq, job.ack = 2, 0, 0
    job.register(T + 2)
    assert desk.ledger.job_views(T + 2)[0].last_failure is FailReason.NONE
    job.heartbeat(T + 3, num_failed=1, last_failure=FailReason.EIO)
    assert failed(desk) == {"eio": 2}


def test_an_agent_that_does_not_say_why_and_one_that_says_too_much_spoil_no_counter() -> None:
    """Earlier releases of the agent give no reason; no job fails a million times between two words."""
    desk = Desk()
    desk.known(1, T).heartbeat(T + 1, num_failed=2)
    desk.known(2, T).heartbeat(T + 1, num_failed=10**15, last_failure=FailReason.EIO)
    assert failed(desk) == {"unknown": 2, "eio": 100}


def test_what_was_counted_outlives_the_coordinator_and_is_not_counted_again() -> None:
    """Total and reason are kept with the pool, what was told with the job."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T + 1, num_failed=2, last_failure=FailReason.EDQUOT)
    desk.restart()
    job.heartbeat(T + 2, num_failed=2, last_failure=FailReason.EDQUOT)
    assert failed(desk) == {"edquot": 2}
    assert desk.ledger.job_views(T + 2)[0].last_failure is FailReason.EDQUOT
