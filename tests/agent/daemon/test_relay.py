"""The meeting of ranks as a writer process sees it: through its cell and its socket, and without its trainer."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rampmeter.core.errors import CommitError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.daemon.parcel import Met, Outcome
from rampmeter.daemon.relay import Relay
from rampmeter.daemon.tidings import Stage
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.throttle import FlowCounters, Throttle

FLOW = FlowCounters(done_bytes=700, throttled_s=3.0, blocked_s=2.0, busy_s=1.0)
LIMIT_S = 20.0


class Pulse:
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def tell(self, **news: Any) -> None:
        self.told.append(news)


@dataclass
class Ends:
    training: socket.socket
    relay: Relay
    pulse: Pulse
    throttle: Throttle


@pytest.fixture
def ends() -> Iterator[Ends]:
    training, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pulse, throttle = Pulse(), Throttle()
    with training, writing:
        yield Ends(training, Relay(writing, pulse, throttle, os.getppid()), pulse, throttle)  # type: ignore[arg-type]


def test_it_goes_on_when_training_says_that_all_have_met(ends: Ends) -> None:
    """With the flow of the whole job, which stands in the manifest."""
    ends.relay.ready(500)
    waiting = in_thread_of_its_own(ends.relay.done)
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    ends.training.send(Met(FLOW).to_bytes())
    waiting.result(LIMIT_S)
    assert ends.relay.flow == FLOW
    assert ends.pulse.told == [{"stage": Stage.READY, "share_bytes": 500}, {"stage": Stage.DURABLE}]


def test_an_abort_ends_the_wait(ends: Ends) -> None:
    """Another rank has failed: there will be no meeting."""
    waiting = in_thread_of_its_own(ends.relay.done)
    ends.throttle.abort(FailReason.RANK_FAILED)
    assert isinstance(waiting.exception(LIMIT_S), LeaseLost)


def test_an_orphan_does_not_wait_for_training(ends: Ends) -> None:
    """It goes on alone: what it meets next has a limit of its own."""
    waiting = in_thread_of_its_own(ends.relay.done)
    ends.training.close()
    waiting.result(LIMIT_S)
    assert ends.relay.flow is None


def test_an_orphan_is_known_where_a_fork_of_training_holds_the_socket(ends: Ends) -> None:
    """By its parent."""
    ends.relay._trainer_pid = 1
    assert os.getppid() != 1
    in_thread_of_its_own(ends.relay.done).result(LIMIT_S)


def test_a_failure_is_told_at_once(ends: Ends) -> None:
    """It is not the end yet; nobody there to hear it is no trouble."""
    ends.relay.failed(CommitError("no space", reason="enospc"))
    told = Outcome.from_bytes(ends.training.recv(4096))
    assert told == Outcome(reason=FailReason.ENOSPC, detail="no space", is_over=False)
    ends.training.close()
    ends.relay.failed(LeaseLost("closing"))
