"""The writer process: takes one order after another, and goes when its trainer has gone.

It reads no configuration, asks nobody and starts nothing; what it may write and until when stands in its cell.
"""

import logging
import os
import pickle
import select
import socket
import sys
from typing import Any

import torch

from rampmeter import dcp
from rampmeter.core.clock import SystemClock
from rampmeter.course import Alone
from rampmeter.daemon.arena import mapped, unpacked
from rampmeter.daemon.cell import Cell
from rampmeter.daemon.circle import Circle
from rampmeter.daemon.flushing import Flush, Pulse
from rampmeter.daemon.hired import STARTED
from rampmeter.daemon.parcel import Met, Order, Outcome
from rampmeter.daemon.relay import Relay
from rampmeter.daemon.tidings import TidingsCell
from rampmeter.failing import reason_of
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")
_LOOK_AROUND_S = 1.0
"""How often an idle writer looks whether its trainer lives: a process that training forked may hold the socket open."""


def serve(connection: int, steering: int, tidings: int) -> None:
    """All that the process does. Descriptors are inherited."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    torch.set_num_threads(1)  # the cores are training's
    try:
        with socket.socket(fileno=connection) as link:
            writer = _Writer(link, Cell(steering), TidingsCell(tidings), os.getppid())
            link.send(STARTED)
            while writer.serve_one():
                pass
    except (BrokenPipeError, ConnectionResetError):
        pass  # the trainer has gone
    finally:
        sys.stderr.flush()
    os._exit(0)  # nothing is open any more, and torch takes its time to leave


class _Writer:
    def __init__(self, link: socket.socket, steering: Cell, tidings: TidingsCell, trainer_pid: int) -> None:
        self._link = link
        self._steering = steering
        self._tidings = tidings
        self._trainer_pid = trainer_pid
        self._arena: torch.Tensor | None = None
        self._clock = SystemClock()
        self._circle = Circle(self._clock)

    def serve_one(self) -> bool:
        """Wait for an order and carry it out; False if there will be none."""
        while not select.select([self._link], [], [], _LOOK_AROUND_S)[0]:
            if os.getppid() != self._trainer_pid:
                return False
        message, descriptors, _, _ = socket.recv_fds(self._link, 64, 2)
        if not message:
            return False
        if Met.is_in(message):  # of a save that was given up at the same moment
            return True
        outcome = self._carry_out(int(message), descriptors)
        self._link.send(outcome.to_bytes())
        return True

    def _carry_out(self, arena_bytes: int, descriptors: list[int]) -> Outcome:
        try:
            order, placed = _read_letter(descriptors[0])
            if len(descriptors) > 1:
                self._arena = mapped(descriptors[1], arena_bytes)
            assert self._arena is not None
            return self._flush(order, unpacked(placed, self._arena))
        except BaseException as error:
            return self._outcome(error)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _flush(self, order: Order, state: dict[str, Any]) -> Outcome:
        throttle = Throttle(clock=self._clock)
        with Pulse(order.number, self._steering, self._tidings, throttle, self._clock) as pulse:
            relay = None if order.party is None else Relay(self._link, pulse, throttle, self._trainer_pid)
            flush = Flush(
                order,
                state,
                pulse=pulse,
                throttle=throttle,
                course=relay or Alone(),
                job_flow=lambda: None if relay is None else relay.flow,
                clock=self._clock,
            )
            try:
                if order.party is not None:
                    self._circle.join(order.party, throttle)
                flush.run()
            except BaseException as error:
                outcome = self._outcome(error)
                return Outcome(group=outcome.group) if flush.is_committed else outcome
        return Outcome(group=self._circle.number)

    def _outcome(self, error: BaseException) -> Outcome:
        """Whoever waits in a group that has broken hears of it when this writer leaves it."""
        if dcp.ends_group(error):
            self._circle.leave()
        cause = dcp.cause_of(error)
        return Outcome(reason=reason_of(cause), detail=str(cause), group=self._circle.number)


def _read_letter(descriptor: int) -> tuple[Order, dict[str, Any]]:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        order, placed = pickle.load(file)  # noqa: S301 - from the process that has started us
    return order, placed
