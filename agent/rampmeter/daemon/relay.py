"""The course of a save of many ranks inside a writer process: training meets the others, and this carries it over.

How far it is goes into the cell, that it fails over the socket, and so comes the answer that all have met. A writer
whose training is gone goes on without the meeting: the collective behind it has a limit of its own.
"""

import contextlib
import os
import select
import socket

from rampmeter.core.errors import LeaseLost
from rampmeter.daemon.flushing import Pulse
from rampmeter.daemon.parcel import Met, Outcome
from rampmeter.daemon.tidings import LOOK_S, Stage
from rampmeter.failing import reason_of
from rampmeter.throttle import FlowCounters, Throttle

_MESSAGE_BYTES = 4096


class Relay:
    """One per save, for the thread that writes."""

    def __init__(self, link: socket.socket, pulse: Pulse, throttle: Throttle, trainer_pid: int) -> None:
        self.flow: FlowCounters | None = None
        """Of the whole job, once all have met; None where nobody could tell."""
        self._link = link
        self._pulse = pulse
        self._throttle = throttle
        self._trainer_pid = trainer_pid

    def begin(self) -> None:
        """No order is given before all ranks hold their snapshots."""

    def ready(self, planned_bytes: int) -> None:
        """Say what this rank is going to write."""
        self._pulse.tell(stage=Stage.READY, share_bytes=planned_bytes)

    def done(self) -> None:
        """Return once the bytes of all ranks are durable, or nobody is left who would know. LeaseLost if aborted."""
        self._throttle.end()
        self._pulse.tell(stage=Stage.DURABLE)
        while not select.select([self._link], [], [], LOOK_S)[0]:
            if self._throttle.abort_reason is not None:
                raise LeaseLost(self._throttle.abort_reason)
            if os.getppid() != self._trainer_pid:  # a process that training forked may hold the socket open
                return
        message = self._heard()
        self.flow = Met.from_bytes(message).flow if message else None

    def _heard(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._link.recv(_MESSAGE_BYTES)
        return b""

    def failed(self, error: BaseException) -> None:
        """Say so at once: what the writers say to each other about it comes later."""
        news = Outcome(reason=reason_of(error), detail=str(error), is_over=False)
        with contextlib.suppress(OSError):
            self._link.send(news.to_bytes())
