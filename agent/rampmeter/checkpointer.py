"""The object that a training loop holds: `restore`, `step`, `should_stop`, `exit_code`.

Puts the parts together and keeps its promises to training: `step` looks at one flag unless a snapshot is wanted, and
nothing of ours raises into the loop after the start. Decides nothing about time or rates: the pacer and the keeper do.
In a job of many ranks each has one; rank 0 alone has a spokesman and removes what is old.
"""

import logging
import os
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from rampmeter import restore as restoring
from rampmeter.config import job_settings
from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.core.messages import EndReason, FailReason, Survives
from rampmeter.daemon.mode import Mode
from rampmeter.desk import Desk
from rampmeter.events import Event, Restored, SaveStarted
from rampmeter.janitor import Janitor
from rampmeter.layout import Claim, Root, StepName
from rampmeter.leaving import ExitWatch, reason_of_end
from rampmeter.preflight.lookout import Lookout
from rampmeter.preflight.shortage import Need
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.crew import Crew, SaveWord, save_wish, stop_wish
from rampmeter.ranks.jobflow import JobFlow
from rampmeter.ranks.opening import num_ranks, open_together
from rampmeter.ranks.team import Hooks, Wish
from rampmeter.report import SaveReport
from rampmeter.retention import Keep
from rampmeter.saving import Saver
from rampmeter.signals import NoticeSignals
from rampmeter.sizing import tensor_bytes
from rampmeter.speaking import Spokesman
from rampmeter.state import State
from rampmeter.stepwatch import StepWatch
from rampmeter.throttle import Throttle
from rampmeter.together import Rank, Together

_log = logging.getLogger("rampmeter")

EXIT_PREEMPTED = 75
"""EX_TEMPFAIL: supervisors start the job again."""

EXIT_REPLACED = 1
DEFAULT_CLOSE_LIMIT_S = 60.0
_RETENTION_LIMIT_S = 5.0
_REPLACED = "replaced"
_PREEMPTED = "preempted"


class Checkpointer:
    """Checkpoints of one job under `root`, metered by a coordinator where there is one.

    pool, coordinator, job   also from RAMPMETER_POOL, RAMPMETER_COORDINATOR, RAMPMETER_JOB; without a coordinator, or
                             with RAMPMETER=off, it is a complete local checkpointer
    tenant                   on whose account it writes, where the pool caps tenants; also from RAMPMETER_TENANT
    survives                 which failures the checkpoints in this pool are for: `node`, or `site` where another tier
                             is there for those of a single node
    notice_s                 from SIGTERM or SIGUSR1 to the end of the process (120 s); also from RAMPMETER_NOTICE_S
    num_gpus, mtbf_s, restart_s   what the interval is computed from; num_gpus None = one for each rank, mtbf_s None = a
                             prior for num_gpus
    interval_min_s is hard, interval_max_s a wish
    keep, keep_days, milestone_steps   what stays: the newest few, the last one of each of so many days, and the first
                             one at or after each multiple of so many steps
    writer_class             a FileSystemWriter class to write through, for storage that is not a mounted directory
    mode                     who writes: `thread` of training, `process` beside it, or `auto`: a process where the state
                             has more than 200 tensors, which in a thread would slow training
    config, code_commit      recorded in the manifest; the commit also from RAMPMETER_CODE_COMMIT, the container's
                             digest from RAMPMETER_CONTAINER_DIGEST
    on_event                 called with `rampmeter.events` values, from the agent's threads

    Raises ConfigError at the start; later only `restore` raises. To be used in a `with` statement.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        pool: str | None = None,
        coordinator: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        num_gpus: int | None = None,
        keep: int = 3,
        keep_days: int = 7,
        milestone_steps: int | None = None,
        mtbf_s: float | None = None,
        restart_s: float | None = None,
        interval_min_s: float | None = None,
        interval_max_s: float | None = None,
        notice_s: float | None = None,
        survives: str = Survives.NODE,
        writer_class: type | None = None,
        mode: str = Mode.AUTO,
        config: Mapping[str, Any] | None = None,
        code_commit: str | None = None,
        check_finite: bool = True,
        on_event: Callable[[Event], None] | None = None,
        seed: int | None = None,
    ) -> None:
        self._settings = job_settings(
            job=job,
            pool=pool,
            coordinator=coordinator,
            tenant=tenant,
            num_gpus=num_ranks() if num_gpus is None else num_gpus,
            mtbf_s=mtbf_s,
            restart_s=restart_s,
            interval_min_s=interval_min_s,
            interval_max_s=interval_max_s,
            notice_s=notice_s,
            survives=survives,
            default_name=os.path.basename(os.path.abspath(root)),  # noqa: PTH100, PTH119 - text, not a look-up
        )
        if not str(root):
            raise ConfigError("root is empty: name the directory that holds this job's checkpoints")
        self._keep = Keep(keep=keep, keep_days=keep_days, milestone_steps=milestone_steps)
        self._clock: Clock = SystemClock()
        self._root = Root(root, clock=self._clock)
        self._listener = on_event
        self._rng = random.Random(seed)
        self._saver_options: dict[str, Any] = {
            "job": self._settings.name,
            "config": config,
            "code_commit": code_commit,
            "check_finite": check_finite,
            "writer_class": writer_class,
            "mode": Mode.of(mode),
            "clock": self._clock,
        }
        self._signals = NoticeSignals(self._on_notice)
        self._exit_watch = ExitWatch(self._leave)
        self._see_step: Callable[[int], None] = _not_started
        self._crew: Crew | None = None
        self._voice: Spokesman | None = None
        self._janitor: Janitor | None = None
        self._noticed = False
        self._saved_after_notice = False
        self._last_save: SaveReport | None = None
        self._sized = False
        self._closed = False
        self._settled = threading.Event()  # no save is in flight, and the end of the last one is told
        self._settled.set()

    # -- life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        job_uid, claim = self._open()
        rank = self._crew.rank if self._crew is not None else Rank()
        self._saver = Saver(self._root, claim, rank=rank, **self._saver_options)
        self._lookout = Lookout(self._root.path)
        self._watch = StepWatch(self._clock)
        if rank.number == 0:
            self._start_speaking(job_uid, claim)
        self._see_step = self._watch.see
        if self._crew is not None:
            self._crew.start()
        self._signals.install()
        self._exit_watch.start()
        return self

    def _open(self) -> tuple[str, Claim]:
        """The job's identity and the claim of this attempt; with the other ranks, if there are any."""
        if num_ranks() == 1:
            return self._claim_root()
        opened = open_together(self._root, self._claim_root, self._clock)
        hooks = Hooks(noticed=self._heard_notice, wish=self._wish, ready=self._all_ready)
        self._crew = Crew(opened, clock=self._clock, hooks=hooks)
        return opened.job_uid, opened.claim

    def _claim_root(self) -> tuple[str, Claim]:
        try:
            return self._root.ensure_job_uid(), self._root.claim_attempt()
        except OSError as error:
            raise ConfigError(f"root {self._root.path}: {error}") from error

    def _start_speaking(self, job_uid: str, claim: Claim) -> None:
        self._voice = Spokesman(
            self._root,
            self._settings,
            job_uid=job_uid,
            claim=claim,
            clock=self._clock,
            rng=self._rng,
            watch=self._watch,
            look=lambda num_bytes, tell: self._lookout.look(self._need(num_bytes), tell),
            tell=self._tell,
            on_claim=self._saver.go_on_as,
        )
        self._janitor = Janitor(self._root, self._keep, attempt=claim.number, is_fenced=self._voice.is_fenced)
        self._janitor.start()
        self._lookout.look_around()
        self._voice.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(reason=reason_of_end(error))

    def close(
        self, limit_s: float = DEFAULT_CLOSE_LIMIT_S, *, reason: EndReason = EndReason.FINISHED
    ) -> None:
        """Wait up to `limit_s` for the save in flight, then say goodbye. The second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._signals.restore()
        if not self._saver.close(limit_s):
            _log.warning("the save in flight was abandoned after %.0f s", limit_s)
        self._settled.wait(_RETENTION_LIMIT_S)
        if self._janitor is not None:
            self._janitor.close(_RETENTION_LIMIT_S)
        if self._voice is not None:
            self._voice.close(EndReason.PREEMPTED if self._noticed else reason)
        if self._crew is not None:
            self._crew.leave()
        self._exit_watch.stop()

    def _leave(self) -> None:
        """The interpreter exits and nobody has closed us."""
        _log.warning("the process ends without close(): use `with rampmeter.Checkpointer(...)`; closing now")
        self.close(reason=EndReason.FAILED)

    def _need(self, num_bytes: int | None) -> Need:
        staged_bytes = 0 if self._saver.has_buffers else num_bytes or 0
        return Need(num_bytes=num_bytes, staged_bytes=staged_bytes)

    # -- training ----------------------------------------------------------------------------------------------

    def restore(self, state: State, *, step: int | None = None, fresh: bool = False) -> int | None:
        """Load the newest whole checkpoint into `state` (or exactly `step`); its step, or None if there is none.

        Raises RestoreError if there are checkpoints but none can be loaded, ForeignCheckpoints if the root holds
        another writer's and `fresh` is not said. Nothing is touched then.
        """
        if self._see_step is _not_started:
            _not_started(0)
        begun_s = self._clock.now()
        found = restoring.restore(self._root, state, step=step, fresh=fresh)
        if found is not None and self._voice is not None:
            load_s = self._clock.now() - begun_s
            self._voice.desk.restored(found.step, load_s=load_s, rolled_back=found.rolled_back)
        self._warm_up(state)
        if found is None:
            return None
        self._saver.parent = StepName.parse(found.directory)
        self._tell(
            Restored(
                now_s=self._clock.now(), step=found.step, directory=found.directory, skipped=found.skipped
            )
        )
        return found.step

    def step(self, step: int, state: State) -> None:
        """Say that training has done `step`; takes the snapshot of `state` if a save is due and granted.

        Microseconds otherwise. `state` as in `restore`: a callable is called only when a save starts. In a job of many
        ranks all call it equally often and with the same steps.
        """
        self._see_step(step)
        if self._crew is not None:
            agreed = self._crew.called(step)
            if agreed is not None:
                self._snapshot(step, state, agreed)
        elif self._wants_snapshot and not self._closed and not self._saver.in_flight:
            self._snapshot(step, state, None)
        if not self._sized:
            self._learn_size(state)

    def poll(self) -> bool:
        """For loops without a state to save, such as an evaluation: leave it, so that `step` can save, or stop.

        True from a notice on, when `should_stop` still waits for the save.
        """
        return self._noticed or self.should_stop

    @property
    def should_stop(self) -> bool:
        """Training should leave its loop: a notice came and its save has ended, or a newer attempt took over.

        A save that cannot be durable before the end counts as ended: it is not begun, or given up. Many ranks hear it
        in the same call of `step`.
        """
        crew = self._crew
        return self._may_stop if crew is None or crew.is_lost else crew.stopped

    @property
    def _may_stop(self) -> bool:
        """As far as this process knows alone."""
        if self._voice is None:  # rank 0 is gone, if it has to be known without it
            return self._noticed
        desk = self._voice.desk
        return self._saved_after_notice or desk.ends_unsaved or desk.stopped

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 0; 75 after a preemption save, so that supervisors start it again."""
        if self._is_replaced:
            return EXIT_REPLACED
        return EXIT_PREEMPTED if self._noticed else 0

    @property
    def _is_replaced(self) -> bool:
        told = self._crew is not None and self._crew.stopped_for == _REPLACED
        return told or (self._voice is not None and self._voice.desk.stopped)

    @property
    def last_save(self) -> SaveReport | None:
        """How the newest save ended; its `reason` is None if it was committed."""
        return self._last_save

    @property
    def num_ungoverned(self) -> int:
        """Saves written with no right but the job's own, because no coordinator had ever answered. Rank 0 counts."""
        return self._voice.desk.num_ungoverned if self._voice is not None else 0

    # -- one save ----------------------------------------------------------------------------------------------

    @property
    def _wants_snapshot(self) -> bool:
        return self._voice is not None and self._voice.desk.wants_snapshot

    def _wish(self) -> Wish | None:
        """Rank 0, asked by the team: what all ranks should do."""
        assert self._voice is not None
        if self._closed:
            return None
        if self._may_stop:
            return stop_wish(_REPLACED if self._voice.desk.stopped else _PREEMPTED)
        if self._wants_snapshot:
            return save_wish(self._voice.claim.number, self._voice.desk.max_streams)
        return None

    def _all_ready(self, num_bytes: int) -> None:
        assert self._voice is not None
        self._voice.desk.first_byte(num_bytes)

    def _snapshot(self, step: int, state: State, agreed: Agreed | None) -> None:
        try:
            if self._voice is None:
                self._save_along(step, state, agreed)
            else:
                self._begin_save(step, state, agreed, self._voice.desk)
        except Exception:
            _log.exception("step %d was not saved: unexpected error beside training", step)

    def _begin_save(self, step: int, state: State, agreed: Agreed | None, desk: Desk) -> None:
        throttle = Throttle(clock=self._clock)
        flow = self._crew.job_flow(throttle) if self._crew is not None else None
        permit = desk.begin_snapshot(flow or throttle)
        if permit is None:
            self._cannot_save(agreed)
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
            max_streams=permit.max_streams,
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
            max_streams=SaveWord.parse(agreed.detail).max_streams if agreed is not None else None,
            together=self._together(agreed, step, throttle, None),
        )
        result.add_done_callback(self._tidy_up)

    def _together(
        self, agreed: Agreed | None, step: int, throttle: Throttle, flow: JobFlow | None
    ) -> Together | None:
        if self._crew is None or agreed is None:
            return None
        return self._crew.together(agreed, step, throttle, flow)

    def _cannot_save(self, agreed: Agreed | None) -> None:
        if self._crew is not None and agreed is not None:
            self._crew.cannot_save(agreed, "the lease has gone before the snapshot", FailReason.LEASE_LOST)

    def _note_save(self, report: SaveReport) -> None:
        self._last_save = report

    def _save_over(self, report: SaveReport) -> None:
        """The lease can be given back; on the disk there is still something to do."""
        assert self._voice is not None
        self._note_save(report)
        self._voice.save_over(report)
        if report.committed:
            self._lookout.save_takes(report.at_work_s)
        self._saved_after_notice = self._noticed and not self._voice.desk.owes_a_save

    def _tidy_up(self, result: "Future[SaveReport]") -> None:
        try:
            if result.result().committed and self._janitor is not None:
                self._janitor.poke()
        finally:
            self._settled.set()

    # -- figures -----------------------------------------------------------------------------------------------

    def _warm_up(self, state: State) -> None:
        """Cold-start figures, and buffers that no save has to pay for. What fails here would fail in a save too."""
        try:
            lacks = self._lookout.memory(self._need(tensor_bytes(state)))
            if lacks is None:
                self._note_stall(self._saver.warm_up(state))
            else:
                _log.warning("no buffers are prepared for saves: %s", lacks.detail)
        except Exception as error:
            _log.warning("the state cannot be saved as it is: %s", error)
        self._learn_size(state)

    def _note_stall(self, stall_s: float) -> None:
        if self._voice is not None:
            self._voice.desk.stall_known(stall_s)

    def _learn_size(self, state: State) -> None:
        self._sized = True
        if self._voice is None:
            return
        try:
            num_bytes = tensor_bytes(state)
        except Exception as error:
            _log.warning("the size of the state is not known before its first save: %s", error)
            return
        self._voice.desk.size_known(num_bytes)

    # -- notices and events ------------------------------------------------------------------------------------

    def _on_notice(self) -> None:
        """A signal came: on this rank, perhaps on this one alone."""
        self._noticed = True
        if self._crew is not None:
            self._crew.notice()
        if self._voice is not None:
            self._voice.desk.notice()

    def _heard_notice(self, _rank: int) -> None:
        """A rank had a notice: then the job has."""
        self._noticed = True
        if self._voice is not None:
            self._voice.desk.notice()

    def _tell(self, event: Event) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            _log.exception("on_event failed")


def _not_started(_step: int) -> None:
    raise ConfigError("the checkpointer was not started: use `with rampmeter.Checkpointer(...) as ckpt:`")


def _ready_when_all_are(_num_bytes: int) -> None:
    """The first byte of this rank alone says nothing: the team tells when all ranks have theirs."""
