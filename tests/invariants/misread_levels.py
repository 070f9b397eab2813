"""The quick way of a pool that is not full, read naively: small patches that a test puts in and takes out again."""

from typing import Any

import pytest

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.level import Level
from rampmeter_coordinator.model.rates import Rates

Patch = pytest.MonkeyPatch


def newcomer_takes_no_room(patch: Patch) -> None:
    """Who comes while there is room has it, and the next one has it too."""
    patch.setattr(Level, "add", lambda self, uid, claim: self._claims.update({uid: claim}))


def silent_jobs_leave_all_room(patch: Patch) -> None:
    """Where all who hold a lease have what they could use, there is room up to the budget."""

    def naive(self: Rates, lane: Kind, now_s: float) -> Any:
        level = level_of(self, lane, now_s)
        if level is not None:
            level._free_bytes_per_s += self._state.budget(lane) - self.rest(lane, now_s)
        return level

    level_of = Rates._level_of
    patch.setattr(Rates, "_level_of", naive)


def whoever_is_lowered_has_given_back(patch: Patch) -> None:
    """All that counts is what everybody should have, whatever was given out before."""
    leased = counting.leased

    def naive(self: Rates, lane: Kind, now_s: float) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(counting, "leased", lambda job, now_s: 0)
            return level_of(self, lane, now_s)

    level_of = Rates._level_of
    assert leased is counting.leased
    patch.setattr(Rates, "_level_of", naive)
