"""What goes over to the writer: values that it could not unpack travel sealed."""

import pickle

import torch

from rampmeter.core.messages import FailReason
from rampmeter.daemon.arena import Placed
from rampmeter.daemon.parcel import Outcome, Sealed, sealed, sealed_state
from rampmeter.statekeys import LEAD, RESERVED

PLACED = Placed(torch.float32, 0, (2,), (1,))


class Foreign:
    """Of a class that the writer may not have."""


def test_only_what_needs_it_is_sealed() -> None:
    """Plain values stay; others are bytes at the place where DCP would make one item of them."""
    plain = {"a": 1, "b": "x", "c": b"y", "d": None, "t": PLACED, "n": {"deep": 1.5}}
    assert sealed(plain) == plain
    foreign = sealed(
        {"one": Foreign(), "list": [Foreign()], "parts": [PLACED, Foreign(), {"deep": Foreign()}]}
    )
    assert isinstance(foreign["one"], Sealed)
    assert isinstance(foreign["list"], Sealed)
    assert foreign["parts"][0] is PLACED
    assert isinstance(foreign["parts"][1], Sealed)
    assert isinstance(foreign["parts"][2]["deep"], Sealed)
    assert b"Foreign" not in pickle.dumps(type(foreign["one"]))


def test_the_planners_paths_are_not_sealed() -> None:
    """They are read in the writer, and never stored."""
    paths = [("buffers", "mean"), ("list", 0)]
    found = sealed_state({"a": PLACED, RESERVED: {LEAD: paths, "step": 3, "odd": [Foreign()]}})
    assert found["a"] is PLACED
    assert found[RESERVED][LEAD] == paths
    assert found[RESERVED]["step"] == 3
    assert isinstance(found[RESERVED]["odd"], Sealed)
    assert sealed_state({"a": PLACED}) == {"a": PLACED}


def test_an_outcome_comes_back_whole_and_short() -> None:
    """One message, whatever the storage had to say."""
    early = Outcome(reason=FailReason.RANK_FAILED, detail="rank_failed", is_over=False)
    for outcome in [Outcome(), Outcome(reason=FailReason.ENOSPC, detail="no space", group=7), early]:
        assert Outcome.from_bytes(outcome.to_bytes()) == outcome
    assert len(Outcome(reason=FailReason.EIO, detail="x" * 10**6).to_bytes()) < 10_000
