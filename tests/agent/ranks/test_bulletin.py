"""The log and the posts in a real store, by several connections of one process."""

import sys
import threading
from collections.abc import Callable

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.ranks.bulletin import Bulletin, RanksLost, join_store, serve_store
from rampmeter.ranks.team import Team
from rampmeter.ranks.words import Event, EventKind, Post, Share, Stage, Word, as_line


@pytest.fixture
def join() -> Callable[[int], Bulletin]:
    """A bulletin of that rank, each with a connection of its own; there are four ranks."""
    store = serve_store("127.0.0.1")
    Bulletin(store, 0).prepare(4)
    return lambda rank: Bulletin(store if rank == 0 else join_store("127.0.0.1", store.port), rank)


def test_all_read_one_order(join: Callable[[int], Bulletin]) -> None:
    """Four ranks write at once, each its own events in its order; nothing is lost, and all read the same log."""
    ranks = [join(rank) for rank in range(4)]

    def write(rank: int) -> None:
        for number in range(20):
            ranks[rank].append(
                Event(kind=EventKind.FAILED, number=number, rank=rank, detail=as_line("voll\n€"))
            )

    threads = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    logs = [list(bulletin.read_log()) for bulletin in ranks]
    assert logs[1:] == logs[:-1]
    assert len(logs[0]) == 80
    for rank in range(4):
        assert [event.number for event in logs[0] if event.rank == rank] == list(range(20))


def test_what_all_have_read_is_forgotten(join: Callable[[int], Bulletin]) -> None:
    """The store does not grow with the life of a job, and the log goes on."""
    first, second = join(0), join(1)
    for number in range(50):
        first.append(Event(kind=EventKind.COMMITTED, number=number))
        for bulletin in (first, second):
            assert [event.number for event in bulletin.read_log()] == [number]
    before = first._store.num_keys()
    first.erase_before(second.num_read)
    assert before - first._store.num_keys() == 50
    second.append(Event(kind=EventKind.COMMITTED, number=50))
    assert [event.number for event in first.read_log()] == [50]


def test_posts_and_words(join: Callable[[int], Bulletin]) -> None:
    """The newest of each rank that has posted, with its beat; only real changes are news."""
    first, second = join(0), join(1)
    assert first.posts(4) == {}
    share = Share(number=3, stage=Stage.READY, step=7, planned_bytes=0, done_bytes=5, busy_s=0.5)
    for beat in (1, 2):
        second.post(beat, Post(share=share), is_news=beat == 1)
    assert first.posts(4) == {1: (2, Post(share=share))}
    assert first.num_news() == 1
    first.say(Word(beat=9, bytes_per_s=0, left_s=1.5))
    assert second.word() == Word(beat=9, bytes_per_s=0, left_s=1.5)


def test_another_release_is_told_from_a_lost_rank(join: Callable[[int], Bulletin]) -> None:
    """What cannot be understood is no event, and the message says why."""
    bulletin = join(1)
    bulletin._store.set("log/0", '{"kind": "dance"}')
    with pytest.raises(RanksLost, match="different releases: kind"):
        list(bulletin.read_log())


def test_an_idle_step_takes_no_lock(join: Callable[[int], Bulletin]) -> None:
    """Two Python calls and not one into C: it compares two integers."""
    team = Team(join(0), rank=0, num_ranks=4, clock=ManualClock())
    seen: list[str] = []
    sys.setprofile(lambda _frame, event, _arg: seen.append(event))
    try:
        team.called(1)
    finally:
        sys.setprofile(None)
    assert seen.count("call") == 2
    assert seen.count("c_call") == 1  # sys.setprofile itself
