"""Ranks that do a piece of work each: they go on together, or fail together with one error."""

from typing import Any

import pytest

from rampmeter.core.errors import CommitError
from rampmeter.ranks.peers import Peers
from support.rank_programs import Ranks

HEAD = """
import threading
from rampmeter.core.errors import CommitError, CorruptCheckpoint
from rampmeter.ranks.peers import Peers
peers = Peers(group)

def fails(error, *ranks):
    def work():
        if rank in ranks:
            raise error
        return rank
    return work

def told(work):
    try:
        return work()
    except BaseException as error:
        return [type(error).__name__, str(error), getattr(error, "reason", None)]

def after_the_beats():
    for thread in threading.enumerate():
        if thread.name == "rampmeter-peers":
            thread.join()
"""


def _run(ranks: Ranks, tmp_path: Any, program: str) -> list[Any]:
    return ranks.answers(3, tmp_path, HEAD + program)


def test_results_are_given_when_all_have_one(ranks: Ranks, tmp_path: Any) -> None:
    """Each rank has its own; what rank 0 alone does is known to all; values are gathered by rank."""
    answers = _run(
        ranks,
        tmp_path,
        """
answer = [peers.agree(lambda: rank), peers.from_first(lambda: f"of {rank}")]
answer += [[value.decode() for value in peers.gather(str(rank).encode() * rank)], peers.has_failed]
""",
    )
    assert answers == [[rank, "of 0", ["", "1", "22"], False] for rank in range(3)]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("fails(CommitError('full', reason='enospc'), 1)", ["CommitError", "full", "enospc"]),
        ("fails(CorruptCheckpoint(f'by {rank}'), 2, 1)", ["CorruptCheckpoint", "by 1 (rank 1)", None]),
        ("fails(OSError(5, 'I/O error', 'x'), 0)", ["OSError", "[Errno 5] I/O error: 'x'", None]),
        ("fails(type('Odd', (Exception,), {})('mine'), 2)", ["RestoreError", "Odd: mine (rank 2)", None]),
    ],
)
def test_the_error_of_the_lowest_rank_is_that_of_all(
    ranks: Ranks, tmp_path: Any, work: str, expected: list[Any]
) -> None:
    """Its class, message and fields; after it they can go on together."""
    answers = _run(
        ranks, tmp_path, f"answer = [told(lambda: peers.agree({work})), peers.agree(lambda: 'goes on')]"
    )
    assert answers == [[expected, "goes on"]] * 3


def test_what_fails_on_rank_0_alone_fails_on_all(ranks: Ranks, tmp_path: Any) -> None:
    """And what would fail elsewhere is not done there."""
    answers = _run(
        ranks,
        tmp_path,
        """
answer = [told(lambda: peers.from_first(fails(CorruptCheckpoint("gone"), 0))),
          told(lambda: peers.from_first(fails(CorruptCheckpoint("gone"), 1, 2)))]
""",
    )
    assert answers == [[["CorruptCheckpoint", "gone (rank 0)", None], 0]] * 3


def test_a_rank_that_is_interrupted_leaves_and_the_others_know(ranks: Ranks, tmp_path: Any) -> None:
    """Ctrl-C on one rank stays what it is there, and does not let the others wait."""
    answers = _run(
        ranks,
        tmp_path,
        """
answer = told(lambda: peers.agree(fails(KeyboardInterrupt(), 1)))
after_the_beats()
""",
    )
    lost = ["RestoreError", "it was interrupted (rank 1)", None]
    assert answers == [lost, ["KeyboardInterrupt", "", None], lost]


def test_an_interrupt_before_the_work_has_begun_is_no_other(ranks: Ranks, tmp_path: Any) -> None:
    """The beats run already, and nobody is left who would end them."""
    answers = _run(
        ranks,
        tmp_path,
        """
class Interrupted(threading.Thread):
    def start(self):
        super().start()
        if self.name == "rampmeter-peers":
            raise KeyboardInterrupt
if rank == 1:
    threading.Thread = Interrupted
answer = told(lambda: peers.agree(lambda: "never"))
after_the_beats()
""",
    )
    lost = ["RestoreError", "it was interrupted (rank 1)", None]
    assert answers == [lost, ["KeyboardInterrupt", "", None], lost]


RIDER = """
class Rider:
    def __init__(self, failure=None):
        self.heard, self.failure, self.ended = [], failure, threading.Event()
    def says(self):
        return [rank + 1, 10 * (rank + 1)]
    def hears(self, sums):
        self.heard.append(sums)
    def ends(self):
        self.ended.set()
"""


def test_who_rides_along_hears_the_sums_of_all_in_each_beat(ranks: Ranks, tmp_path: Any) -> None:
    """At once, four times a second while any rank works, and when all have done."""
    answers = _run(
        ranks,
        tmp_path,
        RIDER
        + """
import time
rider = Rider()
peers.agree(lambda: time.sleep(0.6 if rank == 1 else 0.0), rider)
answer = [rider.heard, rider.ended.is_set()]
""",
    )
    for heard, ended in answers:
        assert 3 <= len(heard) <= 6
        assert heard == [[6, 60]] * len(heard)
        assert not ended


def test_a_rider_can_let_the_work_fail_that_would_not_end(ranks: Ranks, tmp_path: Any) -> None:
    """On all ranks, with its error; each hears that its work has no use any more. Then they can go on together."""
    answers = _run(
        ranks,
        tmp_path,
        RIDER
        + """
rider = Rider(CommitError("enough", reason="quota") if rank == 2 else None)
answer = [told(lambda: peers.agree(lambda: rider.ended.wait(20.0), rider)), peers.agree(lambda: "goes on")]
""",
    )
    assert answers == [[["CommitError", "enough", "quota"], "goes on"]] * 3


def test_a_rank_that_is_gone_ends_the_work_of_who_rides_along(ranks: Ranks, tmp_path: Any) -> None:
    """The work that waits for a word of it is not waited for."""
    outcomes = ranks.run(
        3,
        tmp_path,
        HEAD
        + RIDER
        + """
import os, time
rider = Rider()
begun_s = time.monotonic()
work = (lambda: os._exit(3)) if rank == 1 else (lambda: rider.ended.wait(20.0))
answer = told(lambda: peers.agree(work, rider)) + [time.monotonic() - begun_s]
""",
    )
    assert outcomes[1]["error"] == "died"
    for rank in (0, 2):
        kind, message, _, took_s = outcomes[rank]["answer"]
        assert kind == "RestoreError"
        assert message.startswith("the ranks of this job lost each other: ")
        assert took_s < 10.0


def test_who_is_gone_is_told_with_what_the_network_says(ranks: Ranks, tmp_path: Any) -> None:
    """And what rides along has ended before anybody is asked, which may take a moment; also between two pieces."""
    outcomes = ranks.run(
        3,
        tmp_path,
        HEAD
        + RIDER
        + """
import os
rider, asked = Rider(), []
def who():
    asked.append(rider.ended.is_set())
    return "rank 1 sleeps"
peers = Peers(group, who)
work = (lambda: os._exit(3)) if rank == 1 else (lambda: rider.ended.wait(20.0))
answer = [told(lambda: peers.agree(work, rider))[1], told(lambda: peers.gather(b""))[1], asked]
""",
    )
    for rank in (0, 2):
        *messages, asked = outcomes[rank]["answer"]
        assert asked == [True, True]
        for message in messages:
            assert message.startswith("the ranks of this job lost each other: rank 1 sleeps (")


def test_a_process_that_is_alone_agrees_with_itself() -> None:
    """Without a group and without a thread; errors are passed as they are."""
    peers = Peers()
    assert (peers.rank, peers.world_size, peers.agree(lambda: 1), peers.from_first(lambda: 2)) == (0, 1, 1, 2)
    assert peers.gather(b"x") == [b"x"]
    error = CommitError("full", reason="enospc")

    def fails() -> None:
        raise error

    with pytest.raises(CommitError) as caught:
        peers.agree(fails)
    assert caught.value is error
