"""Where ranks meet in a save: opened together, met together, failed together by the first who failed."""

from rampmeter.ranks.meeting import Attendance, Gathering
from rampmeter.ranks.words import Event, EventKind, Post, Share, Stage

NUMBER = 7


def event(kind: EventKind, rank: int = 0, why: str = "", number: int = NUMBER) -> Event:
    return Event(kind=kind, number=number, rank=rank, detail=why)


class Save:
    """Rank 0 in a save of two ranks."""

    def __init__(self, num_ranks: int = 2) -> None:
        self.gathering = Gathering(number=NUMBER, num_ranks=num_ranks)

    def post(
        self,
        rank: int,
        stage: Stage,
        *,
        step: int = 40,
        number: int = NUMBER,
        applied: int = 0,
        **share: object,
    ) -> None:
        of_save = Share(number=number, stage=stage, step=step, **share)  # type: ignore[arg-type]
        self.gathering.posted(rank, Post(share=of_save, applied=applied))

    def next(self, **absent: str) -> tuple[EventKind, int, str] | None:
        found = self.gathering.next_event({int(rank[1:]): why for rank, why in absent.items()})
        if found is not None:
            self.gathering.heard(found)
        return None if found is None else (found.kind, found.rank, found.detail)


def test_it_opens_when_all_hold_the_same_step() -> None:
    """Once, and not before the last one is there; posts of an older save say nothing."""
    save = Save()
    save.post(0, Stage.HOLDING)
    save.post(1, Stage.ENDED, number=NUMBER - 1)
    assert save.next() is None
    save.post(1, Stage.HOLDING)
    assert save.next() == (EventKind.OPENED, 0, "")
    assert save.next() is None


def test_a_rank_whose_writer_is_not_there_yet_is_waited_for() -> None:
    """It holds its snapshot; the others begin when the process that writes it is there."""
    save = Save()
    save.post(0, Stage.HOLDING)
    save.post(1, Stage.JOINED)
    assert save.next() is None
    save.post(1, Stage.JOINED, step=41)
    assert save.next() == (EventKind.FAILED, 1, "rank 0 holds step 40 and rank 1 holds step 41")
    again = Save()
    again.post(0, Stage.HOLDING)
    again.post(1, Stage.JOINED)
    assert again.next() is None
    again.post(1, Stage.HOLDING)
    assert again.next() == (EventKind.OPENED, 0, "")


def test_different_steps_fail_it_naming_both() -> None:
    """A checkpoint of two steps is none."""
    save = Save(3)
    save.post(0, Stage.HOLDING)
    save.post(2, Stage.HOLDING, step=41)
    assert save.next() == (EventKind.FAILED, 2, "rank 0 holds step 40 and rank 2 holds step 41")
    assert save.gathering.is_over


def test_all_are_met_when_the_last_is_durable() -> None:
    """Not while one writes."""
    save = Save()
    save.post(0, Stage.HOLDING)
    save.post(1, Stage.HOLDING)
    save.next()
    save.post(0, Stage.DONE, planned_bytes=5)
    save.post(1, Stage.READY, planned_bytes=5)
    assert save.next() is None
    save.post(1, Stage.DONE, planned_bytes=5)
    assert save.next() == (EventKind.MET, 0, "")
    assert save.next() is None


def test_who_goes_before_its_bytes_are_durable_fails_it() -> None:
    """At every stage; afterwards it fails nothing any more."""
    for stage in (Stage.HOLDING, Stage.READY):
        save = Save()
        save.post(0, Stage.HOLDING)
        save.post(1, stage)
        assert save.next(r1="has been silent for 10 s") == (
            EventKind.FAILED,
            1,
            "rank 1 has been silent for 10 s",
        )
    save = Save()
    save.post(0, Stage.HOLDING)
    save.post(1, Stage.DONE)
    assert save.next(r1="has left the training loop") == (EventKind.OPENED, 0, "")
    never_there = Save()
    never_there.post(0, Stage.HOLDING)
    assert never_there.next(r1="has left") == (EventKind.FAILED, 1, "rank 1 has left")


def test_bytes_are_known_when_all_have_told() -> None:
    """Their sum, over ready and durable ranks."""
    save = Save()
    save.post(0, Stage.READY, planned_bytes=30)
    assert save.gathering.total_bytes is None
    save.post(1, Stage.HOLDING)
    assert save.gathering.total_bytes is None
    save.post(1, Stage.DONE, planned_bytes=12)
    assert save.gathering.total_bytes == 42


def test_a_rate_is_applied_when_all_who_write_have_it() -> None:
    """A lowering is confirmed no sooner; who is through needs no rate."""
    save = Save()
    save.post(0, Stage.READY, applied=5)
    assert not save.gathering.have_applied(5)
    save.post(1, Stage.READY, applied=4)
    assert not save.gathering.have_applied(5)
    assert save.gathering.have_applied(4)
    save.post(1, Stage.DONE, applied=4)
    assert save.gathering.have_applied(5)


def test_the_flow_of_the_job() -> None:
    """Bytes add up; a rank with three quarters of the bytes has three quarters of the say in the times."""
    save = Save()
    save.post(0, Stage.READY, planned_bytes=75, done_bytes=10, throttled_s=4.0, blocked_s=0.0, busy_s=1.0)
    save.post(1, Stage.READY, planned_bytes=25, done_bytes=20, throttled_s=0.0, blocked_s=4.0, busy_s=1.0)
    flow = save.gathering.counters()
    assert (flow.done_bytes, flow.throttled_s, flow.blocked_s, flow.busy_s) == (30, 3.0, 1.0, 1.0)


def test_a_rank_hears_its_own_save_only() -> None:
    """And the first failure stands."""
    mine = Attendance(number=NUMBER, step=40)
    mine.heard(event(EventKind.FAILED, 3, "old", number=NUMBER - 1))
    assert mine.failure is None
    mine.heard(event(EventKind.OPENED))
    mine.heard(event(EventKind.FAILED, 3, "disk full"))
    mine.heard(event(EventKind.FAILED, 1, "lease lost"))
    mine.heard(event(EventKind.MET))
    assert mine.failure is not None
    assert (mine.failure.rank, mine.failure.why) == (3, "disk full")
    assert (mine.is_open, mine.is_met, mine.is_settled) == (True, False, True)


def test_after_all_have_met_nobody_fails_it_here() -> None:
    """What fails then fails in the collectives, which reach all ranks by themselves."""
    mine = Attendance(number=NUMBER, step=40)
    mine.heard(event(EventKind.MET))
    mine.heard(event(EventKind.FAILED, 3, "late"))
    assert mine.failure is None


def test_the_turn_goes_to_the_next_rank_when_one_has_written() -> None:
    """Two at once: ranks 0 and 1; whoever is through makes room for the next, in order; at the end all may."""
    save = Save(4)
    assert save.gathering.turn(2) == 2
    for rank in range(4):
        save.post(rank, Stage.READY, planned_bytes=10)
    turns = []
    for rank in (1, 0, 3, 2):
        save.post(rank, Stage.DONE, planned_bytes=10)
        turns.append(save.gathering.turn(2))
    assert turns == [3, 4, 4, 4]
