"""The saves of this process, as training takes part in them: the snapshot, its end, and when training may stop.

Between the saver, the spokesman and the crew; nothing here raises into training. Decides nothing about time or rates.
In a job of many ranks rank 0 has a spokesman and wishes what all do, and all others save along.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from rampmeter.core.clock import Clock
from rampmeter.core.messages import FailReason
from rampmeter.desk import Desk
from rampmeter.events import Event, SaveStarted
from rampmeter.failing import ABORTED
from rampmeter.janitor import Janitor
from rampmeter.preflight.lookout import Lookout, Tell
from rampmeter.preflight.shortage import Need
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.crew import PREEMPTED, REPLACED, Crew, SaveWord, save_wish, stop_wish
from rampmeter.ranks.jobflow import JobFlow
from rampmeter.ranks.team import Wish
from rampmeter.report import SaveReport
from rampmeter.rereading.rereader import Rereader
from rampmeter.saving import Saver
from rampmeter.sizing import staged_bytes, tensor_bytes
from rampmeter.speaking import Spokesman
from rampmeter.state import State
from rampmeter.stepwatch import StepWatch
from rampmeter.throttle import Throttle
from rampmeter.together import Together

_log = logging.getLogger("rampmeter")


class Taking:
    """One per process, between `start` and `close`. `take` and what is about the state are for the training thread."""

    def __init__(
        self,
        saver: Saver,
        *,
        lookout: Lookout,
        watch: StepWatch,
        clock: Clock,
        tell: Callable[[Event], None],
        crew: Crew | None,
    ) -> None:
        self.last_save: SaveReport | None = None
        self.is_noticed = False
        """The job was told that it ends."""
        self.num_failed = 0
        """Saves that have failed since the last one that was committed."""
        self.is_sized = False
        self.voice: Spokesman | None = None
        """On rank 0, from `start_speaking` on."""
        self._saver = saver
        self._lookout = lookout
        self._watch = watch
        self._clock = clock
        self._tell = tell
        self._crew = crew
        self._janitor: Janitor | None = None
        self._rereader: Rereader | None = None
        self._saved_after_notice = False
        self._closed = False
        self._settled = threading.Event()  # no save is in flight, and the end of the last one is told
        self._settled.set()

    def start_speaking(self, voice: Spokesman, janitor: Janitor, rereader: Rereader) -> None:
        """This process speaks for the job, removes what is old and reads back what is new."""
        self.voice, self._janitor, self._rereader = voice, janitor, rereader
        janitor.start()
        rereader.start()
        self._lookout.look_around()
        voice.start()

    def close(self, limit_s: float, settle_limit_s: float) -> None:
        """Wait up to `limit_s` for the save in flight, and then for what it leaves to be done on the disk."""
        self._closed = True
        if self._rereader is not None:
            self._rereader.stop()
        if not self._saver.close(limit_s):
            settle_limit_s = 0.0
            _log.warning(
                "the save in flight was abandoned: it took more than %.0f s, or storage hangs", limit_s
            )
        self._settled.wait(settle_limit_s)
        if self.voice is not None:
            self.voice.desk.parting.closing()
        if self._janitor is not None:
            self._janitor.close(settle_limit_s)
        if self._rereader is not None:
            self._rereader.join()

    def look(self, num_bytes: int | None, tell: Tell) -> bool:
        """Whether a save can be made, as Lookout.look."""
        return self._lookout.look(self._need(num_bytes), tell)

    def _need(self, num_bytes: int | None) -> Need:
        staged_bytes = 0 if self._saver.has_buffers else num_bytes or 0
        return Need(num_bytes=num_bytes, staged_bytes=staged_bytes)

    @property
    def has_saved(self) -> bool:
        """This attempt has begun a save."""
        return self.last_save is not None or self._saver.in_flight

    # -- what is wanted ----------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """A job of one process should save in this step."""
        desk = None if self.voice is None else self.voice.desk
        return desk is not None and desk.wants_snapshot and not self._closed and not self._saver.in_flight

    @property
    def may_stop(self) -> bool:
        """Nothing more is to be saved, as far as this process knows alone."""
        if self.voice is None:  # asked only where rank 0 is heard no more
            return self.is_noticed
        desk = self.voice.desk
        return self._saved_after_notice or desk.ends_unsaved or desk.ends_soon or desk.stopped

    @property
    def is_replaced(self) -> bool:
        """A newer attempt has taken over, as far as this process knows alone."""
        return self.voice is not None and self.voice.desk.stopped

    def notice(self, what: str) -> None:
        """`what` has told the job that it ends. Takes no lock, for it may be called inside a signal handler."""
        self.is_noticed = True
        self._saver.hurry()
        if self.voice is not None:
            self.voice.desk.notice(what)

    def wish(self) -> Wish | None:
        """Rank 0, asked by the team: what all ranks should do."""
        assert self.voice is not None
        desk = self.voice.desk
        if self._closed:
            return None
        if self.may_stop:
            return stop_wish(REPLACED if desk.stopped else PREEMPTED)
        if not desk.wants_snapshot or self._crew is None:
            return None
        way = self._crew.way(in_a_hurry=self.is_noticed)
        return None if way is None else save_wish(self.voice.claim.number, desk.max_streams, way)

    def all_ready(self, num_bytes: int) -> None:
        """Rank 0, told by the team: all ranks have their first byte in hand."""
        assert self.voice is not None
        self.voice.desk.first_byte(num_bytes)

    # -- one save ----------------------------------------------------------------------------------------------

    def take(self, step: int | None, state: State, agreed: Agreed | None) -> None:
        """Take the snapshot; `agreed` says what is one save with the other ranks. Raises only what interrupts training.

        Without a number of the step there is none, and that fails the save on all ranks.
        """
        try:
            if step is None:
                self._cannot_save(
                    agreed, "step() was called without a number of the step", FailReason.BAD_STATE
                )
            elif self.voice is not None:
                self._begin_save(step, state, agreed, self.voice.desk)
            else:
                self._save_along(step, state, agreed)
        except Exception:
            _log.exception("step %d was not saved: unexpected error beside training", step)
        except BaseException:
            self._settled.set()  # what interrupts the snapshot has ended the save
            raise

    def _begin_save(self, step: int, state: State, agreed: Agreed | None, desk: Desk) -> None:
        throttle = Throttle(clock=self._clock)
        flow = self._crew.job_flow(throttle) if self._crew is not None else None
        permit = desk.begin_snapshot(flow or throttle)
        if permit is None:
            gone = "the lease has gone before the snapshot"
            self._cannot_save(agreed, gone, FailReason.LEASE_LOST)
            return
        self._settled.clear()
        self._tell(SaveStarted(now_s=self._clock.now(), step=step))
        result = self._saver.begin(
            step,
            state,
            throttle,
            on_first_byte=desk.first_byte if agreed is None else _ready_when_all_are,
            on_end=self._save_over,
            lease=permit.fence,
            max_streams=self._streams_here(agreed, permit.max_streams),
            together=self._together(agreed, step, throttle, flow),
        )
        self._watch.flush_begins()
        result.add_done_callback(self._tidy_up)

    def _save_along(self, step: int, state: State, agreed: Agreed | None) -> None:
        """This rank's share of a save for which rank 0 speaks."""
        throttle = Throttle(clock=self._clock)
        self._settled.clear()
        result = self._saver.begin(
            step,
            state,
            throttle,
            on_end=self._note_save,
            max_streams=self._streams_here(agreed, None),
            together=self._together(agreed, step, throttle, None),
        )
        result.add_done_callback(self._tidy_up)

    def _streams_here(self, agreed: Agreed | None, permitted: int | None) -> int | None:
        """How many writers this process may have; where there are fewer than ranks these take turns."""
        if self._crew is None or agreed is None:
            return permitted
        max_streams = SaveWord.parse(agreed.detail).max_streams
        return None if max_streams is None else max(1, max_streams // self._crew.rank.num_ranks)

    def _together(
        self, agreed: Agreed | None, step: int, throttle: Throttle, flow: JobFlow | None
    ) -> Together | None:
        if self._crew is None or agreed is None:
            return None
        return self._crew.together(agreed, step, throttle, flow)

    def _cannot_save(self, agreed: Agreed | None, why: str, reason: FailReason) -> None:
        if self._crew is not None and agreed is not None:
            self._crew.cannot_save(agreed, why, reason)

    def _note_save(self, report: SaveReport) -> None:
        self.last_save = report
        if report.committed:
            self.num_failed = 0
        elif report.reason not in ABORTED:
            self.num_failed += 1

    def _save_over(self, report: SaveReport) -> None:
        """The lease can be given back; on the disk there is still something to do."""
        assert self.voice is not None
        self._note_save(report)
        self.voice.save_over(report)
        if report.committed:
            self._lookout.save_takes(report.at_work_s)
        self._saved_after_notice = self.is_noticed and not self.voice.desk.owes_a_save

    def _tidy_up(self, result: "Future[SaveReport]") -> None:
        try:
            report = result.result()
            if report.committed and self._janitor is not None and self._rereader is not None:
                self._janitor.poke()
                self._rereader.committed()
            if report.reason is FailReason.SUPERSEDED and self.voice is not None and self.voice.is_fenced():
                self.voice.desk.stop("a newer attempt has claimed the root")
        finally:
            self._settled.set()

    # -- the state ---------------------------------------------------------------------------------------------

    def warm_up(self, state: State) -> None:
        """Cold-start figures, and buffers that no save has to pay for. What fails here would fail in a save too."""
        try:
            lacks = self._lookout.memory(self._need(staged_bytes(state)))
            if lacks is None:
                self._note_stall(self._saver.warm_up(state))
            else:
                _log.warning("no buffers are prepared for saves: %s", lacks.detail)
        except Exception as error:
            _log.warning("the state cannot be saved as it is: %s", error)
        self.learn_size(state)

    def _note_stall(self, stall_s: float) -> None:
        if self.voice is not None:
            self.voice.desk.stall_known(stall_s)

    def learn_size(self, state: State) -> None:
        """Tell the coordinator what a save will have to write, before the first one has told."""
        self.is_sized = True
        if self._crew is not None and not self._saver.beside().is_known:
            self._saver.look_at(state)
        if self.voice is None:
            return
        try:
            num_bytes = tensor_bytes(state)
        except Exception as error:
            _log.warning("the size of the state is not known before its first save: %s", error)
            return
        self.voice.desk.size_known(num_bytes)


def _ready_when_all_are(_num_bytes: int) -> None:
    """The first byte of this rank alone says nothing: the team tells when all ranks have theirs."""
