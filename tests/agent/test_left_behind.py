"""Retention after somebody went back to an older step by name: what stays of this history, and of the other."""

import random
from dataclasses import dataclass

import pytest

from rampmeter.layout import Root, StepName
from rampmeter.marks import Mark, put_mark
from rampmeter.retention import Keep, Kept, prune, why_kept
from rampmeter.rollback import Choice, note_choice
from support.roots import nothing, put_commit, steps_in


def kept(
    step: int,
    *,
    attempt: int = 1,
    left: bool = False,
    day: int = 30,
    pinned: bool = False,
    proven: bool = False,
) -> Kept:
    name = StepName(step=step, attempt=attempt, nonce="0" * 8)
    return Kept(name=name, day=f"2026-11-{day:02}", pinned=pinned, proven=proven, left_behind=left)


def staying(commits: list[Kept], **keep: int) -> dict[tuple[int, int], list[str]]:
    """Attempts and steps that stay, and why."""
    reasons = why_kept(commits, Keep(**({"keep": 1, "keep_days": 0} | keep)))
    return {(name.attempt, name.step): [*map(str, why)] for name, why in reasons.items() if why}


# -- which ones -------------------------------------------------------------------------------------------------


def test_what_was_left_behind_pushes_nothing_out() -> None:
    """The last few of the history that goes on stay, though the others are of later steps and no older attempt."""
    commits = [kept(40), kept(50), kept(60, left=True), kept(70, left=True), kept(55, attempt=2)]
    assert staying(commits, keep=3) == {(2, 55): ["last"], (1, 50): ["last"], (1, 40): ["last"]}


def test_what_was_left_behind_has_the_free_places() -> None:
    """The newest of it, while the new history has fewer than stay; so nothing goes before there is something newer."""
    commits = [kept(50), kept(60, left=True), kept(70, left=True)]
    assert staying(commits, keep=3).keys() == {(1, 50), (1, 70), (1, 60)}
    commits.append(kept(55, attempt=2))
    assert staying(commits, keep=3).keys() == {(2, 55), (1, 50), (1, 70)}
    commits.append(kept(56, attempt=2))
    assert staying(commits, keep=3).keys() == {(2, 56), (2, 55), (1, 50)}


def test_pinned_ones_stay_wherever_they_are() -> None:
    """A pin is somebody's word."""
    commits = [kept(50), kept(60, left=True, pinned=True), kept(70, left=True)]
    assert staying(commits) == {(1, 50): ["last"], (1, 60): ["pinned"]}


def test_the_proven_one_is_of_the_history_that_goes_on() -> None:
    """The other is loaded by nobody; it stands in while nothing else is proven."""
    commits = [kept(40), kept(50), kept(60, left=True, proven=True)]
    assert staying(commits) == {(1, 50): ["last"], (1, 60): ["proven"]}
    commits[0] = kept(40, proven=True)
    assert staying(commits) == {(1, 50): ["last"], (1, 40): ["proven"]}


def test_days_are_those_of_the_history_that_goes_on() -> None:
    """On a day of both its last one stays; days on which only the other was saved have the places that are free."""
    commits = [
        kept(10, day=26),
        kept(20, day=27),
        kept(30, day=28, left=True),
        kept(40, day=29, left=True),
        kept(25, day=29, attempt=2),
        kept(26, day=30, attempt=2),
    ]
    days = {"keep_days": 4}
    assert staying(commits, **days).keys() == {(2, 26), (2, 25), (1, 20), (1, 10)}
    assert staying(commits, keep_days=5).keys() == {(2, 26), (2, 25), (1, 20), (1, 10), (1, 30)}


def test_a_milestone_that_was_left_behind_stands_until_this_history_has_its_own() -> None:
    """There is always one for each stretch, and it is of the history that goes on once that has come by."""
    commits = [kept(1001), kept(1500), kept(2002, left=True), kept(2500, left=True), kept(1600, attempt=2)]
    every = {"milestone_steps": 1000}
    assert staying(commits, **every).keys() == {(2, 1600), (1, 1001), (1, 2002)}
    commits.append(kept(2100, attempt=2))
    assert staying(commits, **every).keys() == {(2, 2100), (1, 1001)}


# -- on disk ----------------------------------------------------------------------------------------------------


def go_back(root: Root, name: StepName) -> None:
    """A new attempt begins from this one by name."""
    note_choice(root, Choice(attempt=root.claim_attempt().number, name=name))


def test_the_chosen_one_is_not_removed_by_what_was_left_behind(root: Root) -> None:
    """Two stay; 1 is chosen, and 4 is saved: 1 is what a restart falls back to, 2 and 3 nobody goes on from."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    go_back(root, names[0])
    prune(root, Keep(keep=2, keep_days=0), nothing)
    assert steps_in(root) == [3, 1]
    put_commit(root, 4)
    prune(root, Keep(keep=2, keep_days=0), nothing)
    assert steps_in(root) == [4, 1]


@dataclass
class Forked:
    """A root, and what its checkpoints were made from."""

    root: Root
    parents: dict[StepName, StepName | None]
    head: StepName | None = None
    num_since: int = 0
    """Commits since somebody went back."""

    def save(self, step: int) -> None:
        name = put_commit(self.root, step)
        self.parents[name] = self.head
        self.head = name
        self.num_since += 1

    def back_to(self, name: StepName) -> None:
        go_back(self.root, name)
        self.head, self.num_since = name, 0

    @property
    def history(self) -> list[StepName]:
        """What training goes on with, newest first."""
        found, name = [], self.head
        while name is not None:
            found.append(name)
            name = self.parents[name]
        return found


@pytest.mark.parametrize("seed", range(12))
def test_histories_that_fork_at_random_keep_what_was_promised(root: Root, seed: int) -> None:
    """Restarts, and going back by name to whatever is there, also to what was left behind.

    Of the history that goes on the last `keep` stay that were there; what is neither pinned nor a milestone is at most
    keep + 1, and after `keep` saves nothing else of another history is left.
    """
    draw = random.Random(seed)
    keep = Keep(keep=draw.randint(1, 3), keep_days=0, milestone_steps=draw.choice([None, 10]))
    forked = Forked(root, {})
    for _ in range(40):
        what = draw.random()
        if what < 0.2 and forked.head is not None:
            forked.back_to(draw.choice(root.committed_steps()))
        elif what < 0.3:
            root.ensure_job_uid()
            root.claim_attempt()
        forked.save((forked.head.step if forked.head else 0) + draw.randint(1, 4))
        if draw.random() < 0.15:
            put_mark(
                root.directory(draw.choice(root.committed_steps())), draw.choice([Mark.PINNED, Mark.PROVEN])
            )
        wanted = [name for name in forked.history if root.is_committed(name)][: keep.keep]
        prune(root, keep, nothing)
        there = root.committed_steps()
        assert set(wanted) <= set(there)
        plain = [name for name in there if not _is_exempt(forked, name, keep)]
        assert len(plain) <= keep.keep + 1
        if forked.num_since >= keep.keep:
            others = [name for name in plain if name not in forked.history]
            assert all((root.directory(name) / Mark.PROVEN).exists() for name in others)


def _is_exempt(forked: Forked, name: StepName, keep: Keep) -> bool:
    """Pinned, or the only one there of its stretch between two milestones in its own right."""
    if (forked.root.directory(name) / Mark.PINNED).exists():
        return True
    every = keep.milestone_steps
    if every is None or name.step < every:
        return False
    history = set(forked.history)
    stretch = [other for other in forked.root.committed_steps() if other.step // every == name.step // every]
    return min(stretch, key=lambda other: (other not in history, other.step, -other.attempt)) == name
