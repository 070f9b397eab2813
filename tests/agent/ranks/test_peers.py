"""Ranks that do a piece of work each: they go on together, or fail together with one error."""

from typing import Any

import pytest

from rampmeter.core.errors import CommitError
from rampmeter.ranks.peers import Peers
from support.rank_programs import Ranks

HEAD = """
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
import threading
answer = told(lambda: peers.agree(fails(KeyboardInterrupt(), 1)))
for thread in threading.enumerate():
    if thread.name == "rampmeter-peers":
        thread.join()
""",
    )
    lost = ["RestoreError", "it was interrupted (rank 1)", None]
    assert answers == [lost, ["KeyboardInterrupt", "", None], lost]


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
