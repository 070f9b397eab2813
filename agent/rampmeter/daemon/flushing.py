"""One save inside the writer process: steered by one cell, telling in the other, committed here.

The commit belongs to whoever holds the bytes: if training is killed meanwhile, a save whose lease lives is finished and
committed, unless a newer attempt has claimed the root. What has no lease and no trainer stops.
"""

import os
import resource
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rampmeter import dcp
from rampmeter.commit import WrittenFile, commit
from rampmeter.core.clock import Clock
from rampmeter.core.errors import LeaseLost
from rampmeter.course import Course
from rampmeter.daemon.cell import Cell, CellReader
from rampmeter.daemon.orphan import Orphan
from rampmeter.daemon.parcel import Order
from rampmeter.daemon.tidings import LOOK_S, Stage, Tidings, TidingsCell
from rampmeter.flushed import flush_record
from rampmeter.layout import Root
from rampmeter.manifest import KeyNorm
from rampmeter.throttle import FlowCounters, Throttle


class Pulse:
    """A thread beside the one that writes: follows the trainer's cell and tells in the writer's."""

    def __init__(
        self, number: int, steering: Cell, tidings: TidingsCell, throttle: Throttle, clock: Clock
    ) -> None:
        self._follower = CellReader(steering, number, throttle)
        self._steering = steering
        self._cell = tidings
        self._throttle = throttle
        self._clock = clock
        self._lock = threading.Lock()
        self._told = Tidings(number=number)
        self._orphan = Orphan(clock.now())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rampmeter-pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._turn()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.tell()

    def tell(self, **news: Any) -> None:
        """Tell at once what is new, with what the throttle counts now."""
        with self._lock:
            counters = self._throttle.counters()
            self._told = replace(
                self._told,
                beat=self._told.beat + 1,
                counters=counters,
                in_storage=self._throttle.is_in_storage,
                **news,
            )
            self._cell.write(self._told)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._turn()

    def _turn(self) -> None:
        now_s = self._clock.now()
        may_write = True
        try:
            self._follower.look(now_s)
        except LeaseLost:
            may_write = False
        self._end_if_stuck(now_s, may_write=may_write)
        self.tell(followed=self._follower.followed)

    def _end_if_stuck(self, now_s: float, *, may_write: bool) -> None:
        """A call into the storage may never come back, and nobody is left who would end this process."""
        steering = self._steering.read()
        if steering is None or steering.trainer_lives:
            self._orphan.has_a_trainer(now_s)
        elif self._orphan.is_stuck(now_s, _work_of_others_s(), may_write=may_write):
            os._exit(1)


def _work_of_others_s() -> float:
    """CPU time of all threads but the calling one."""
    everybody, caller = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_THREAD)
    return everybody.ru_utime + everybody.ru_stime - caller.ru_utime - caller.ru_stime


class Flush:
    """Writes and commits the save of one order. `run` raises what stopped it.

    job_flow   what all ranks of the job have written, where this one commits; None = it is the only one
    """

    def __init__(
        self,
        order: Order,
        state: dict[str, Any],
        *,
        pulse: Pulse,
        throttle: Throttle,
        course: Course,
        job_flow: Callable[[], FlowCounters | None],
        clock: Clock,
    ) -> None:
        self.is_committed = False
        self._order = order
        self._state = state
        self._pulse = pulse
        self._throttle = throttle
        self._course = course
        self._job_flow = job_flow
        self._clock = clock
        self._root = Root(order.root, clock=clock)
        self._lead_s = 0.0

    def run(self) -> None:
        order = self._order
        writer = dcp.metered_writer(
            self._root.directory(order.record.name),
            throttle=self._throttle,
            course=self._course,
            on_first_byte=self._first_byte,
            finish=self._commit,
            writer_class=order.writer_class,
            max_streams=order.max_streams,
        )
        planner = dcp.CheckedSavePlanner(
            check=order.check_finite, with_norms=order.record.norm_limit is not None
        )
        try:
            dcp.save_here(self._state, writer=writer, planner=planner, single_process=order.party is None)
        finally:
            self._throttle.end()

    def _first_byte(self, num_bytes: int) -> None:
        self._lead_s = self._clock.now() - self._order.begun_at_s
        self._pulse.tell(stage=Stage.WRITING, planned_bytes=num_bytes)

    def _commit(
        self, written: Sequence[WrittenFile], unchecked: Sequence[str], norms: Sequence[KeyNorm]
    ) -> None:
        self._throttle.end()
        self._pulse.tell(stage=Stage.COMMITTING)
        counters = self._job_flow() or self._throttle.counters()
        record = flush_record(
            written=written,
            unchecked=unchecked,
            norms=norms,
            fence=self._order.fence,
            counters=counters,
            stage_s=self._order.stage_s,
            stall_s=self._order.stall_s,
            lead_s=self._lead_s,
            write_s=self._clock.now() - self._order.begun_at_s,
        )
        commit(self._root, self._order.record, record, clock=self._clock)
        self.is_committed = True
