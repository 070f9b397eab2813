"""The object that a training loop holds: `restore`, `step`, `should_stop`, `exit_code`.

Puts the parts together and keeps its promises to training: `step` looks at one flag unless a snapshot is wanted, and
nothing of ours raises into the loop after the start. Decides nothing about time or rates: the pacer and the keeper do.
"""

import logging
import os
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import torch.distributed

from rampmeter import restore as restoring
from rampmeter.config import job_settings
from rampmeter.core import interval
from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.decode import decode, encode
from rampmeter.core.errors import ConfigError, ProtocolError
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import EndReason, FailReason, Plan, Survives
from rampmeter.core.pacer import Pacer
from rampmeter.desk import Desk
from rampmeter.events import Event, Restored, SaveStarted
from rampmeter.figures import Figures
from rampmeter.janitor import Janitor
from rampmeter.keeper import Keeper
from rampmeter.layout import Claim, Root, StepName
from rampmeter.leaving import ExitWatch, reason_of_end
from rampmeter.preflight.lookout import Lookout, Tell
from rampmeter.preflight.shortage import Need
from rampmeter.report import SaveReport
from rampmeter.retention import Keep
from rampmeter.rollback import Choice, note_choice, withdraw_choice
from rampmeter.saving import Saver
from rampmeter.signals import NoticeSignals
from rampmeter.sizing import tensor_bytes
from rampmeter.speech import Speech
from rampmeter.state import State
from rampmeter.stepwatch import StepWatch

_log = logging.getLogger("rampmeter")

EXIT_PREEMPTED = 75
"""EX_TEMPFAIL: supervisors start the job again."""

EXIT_REPLACED = 1
DEFAULT_STALL_S = 1.0
DEFAULT_CLOSE_LIMIT_S = 60.0
_FAREWELL_LIMIT_S = 5.0
_RETENTION_LIMIT_S = 5.0


class Checkpointer:
    """Checkpoints of one job under `root`, metered by a coordinator where there is one.

    pool, coordinator, job   also from RAMPMETER_POOL, RAMPMETER_COORDINATOR, RAMPMETER_JOB; without a coordinator, or
                             with RAMPMETER=off, it is a complete local checkpointer
    tenant                   on whose account it writes, where the pool caps tenants; also from RAMPMETER_TENANT
    survives                 which failures the checkpoints in this pool are for: `node`, or `site` where another tier
                             is there for those of a single node
    notice_s                 from SIGTERM or SIGUSR1 to the end of the process (120 s); also from RAMPMETER_NOTICE_S
    num_gpus, mtbf_s, restart_s   what the interval is computed from; mtbf_s None = a prior for num_gpus
    interval_min_s is hard, interval_max_s a wish
    keep, keep_days, milestone_steps   what stays: the newest few, the last one of each of so many days, and the first
                             one at or after each multiple of so many steps
    writer_class             a FileSystemWriter class to write through, for storage that is not a mounted directory
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
            num_gpus=num_gpus,
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
        _refuse_many_ranks()
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
            "clock": self._clock,
        }
        self._signals = NoticeSignals(self._on_notice)
        self._exit_watch = ExitWatch(self._leave)
        self._see_step: Callable[[int], None] = _not_started
        self._noticed = False
        self._saved_after_notice = False
        self._last_save: SaveReport | None = None
        self._choice: Choice | None = None
        self._sized = False
        self._closed = False
        self._settled = threading.Event()  # no save is in flight, and the end of the last one is told
        self._settled.set()

    # -- life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            job_uid = self._root.ensure_job_uid()
            self._claim = self._root.claim_attempt()
        except OSError as error:
            raise ConfigError(f"root {self._root.path}: {error}") from error
        self._janitor = Janitor(self._root, self._keep, attempt=self._claim.number, is_fenced=self._is_fenced)
        self._janitor.start()
        self._saver = Saver(self._root, self._claim, **self._saver_options)
        self._lookout = Lookout(self._root.path)
        self._watch = StepWatch(self._clock)
        self._speech = Speech(self._settings, job_uid, self._claim, self._watch)
        self._keeper = self._make_keeper()
        self._desk = self._make_desk()
        self._see_step = self._watch.see
        self._lookout.look_around()
        self._keeper.start(self._desk)
        self._signals.install()
        self._exit_watch.start()
        return self

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
        has_only_looked = reason is EndReason.FINISHED and self._watch.first_step_s is None
        if self._choice is not None and has_only_looked and not self._noticed:
            withdraw_choice(self._root, self._choice)
        self._settled.wait(_RETENTION_LIMIT_S)
        self._janitor.close(_RETENTION_LIMIT_S)
        self._keeper.close(_FAREWELL_LIMIT_S, EndReason.PREEMPTED if self._noticed else reason)
        self._exit_watch.stop()

    def _leave(self) -> None:
        """The interpreter exits and nobody has closed us."""
        _log.warning("the process ends without close(): use `with rampmeter.Checkpointer(...)`; closing now")
        self.close(reason=EndReason.FAILED)

    def _make_keeper(self) -> Keeper:
        return Keeper(
            url=self._settings.coordinator,
            pool=self._settings.pool,
            rng=self._rng,
            is_fenced=self._is_fenced,
            reclaim=self._reclaim,
            on_plan=self._keep_plan,
        )

    def _make_desk(self) -> Desk:
        now_s = self._clock.now()
        lease_clock = LeaseClock()
        kept = self._kept_plan()
        if kept is not None and self._settings.coordinator is not None:
            lease_clock.remember(kept, now_s)
        pacer = Pacer(
            lease_clock,
            now_s=now_s,
            draw=self._rng.random(),
            own_period_s=self._own_period(self._speech.figures),
            local=self._settings.coordinator is None,
            looks_first=True,
        )
        return Desk(
            pacer,
            self._speech,
            clock=self._clock,
            on_event=self._tell,
            poke=self._keeper.poke,
            look=self._look,
        )

    def _look(self, num_bytes: int | None, tell: Tell) -> bool:
        return self._lookout.look(self._need(num_bytes), tell)

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
        if found is not None:
            load_s = self._clock.now() - begun_s
            self._desk.restored(found.step, load_s=load_s, rolled_back=found.rolled_back)
        self._warm_up(state)
        if found is None:
            return None
        self._go_on_from(found.directory, by_name=step is not None)
        self._tell(
            Restored(
                now_s=self._clock.now(), step=found.step, directory=found.directory, skipped=found.skipped
            )
        )
        return found.step

    def _go_on_from(self, directory: str, *, by_name: bool) -> None:
        """What this attempt has saved before must not be newer than what it saves from now on."""
        if self._last_save is not None or self._saver.in_flight:
            self._reclaim(self._claim.number + 1)
        self._saver.parent = name = StepName.parse(directory)
        if by_name and name is not None:
            self._choice = Choice(attempt=self._claim.number, name=name)
            note_choice(self._root, self._choice)

    def step(self, step: int, state: State) -> None:
        """Say that training has done `step`; takes the snapshot of `state` if a save is due and granted.

        Microseconds otherwise. `state` as in `restore`: a callable is called only when a save starts.
        """
        self._see_step(step)
        if self._desk.wants_snapshot and not self._closed and not self._saver.in_flight:
            self._snapshot(step, state)
        elif not self._sized:
            self._learn_size(state)

    def poll(self) -> bool:
        """For loops without a state to save, such as an evaluation: leave it, so that `step` can save, or stop.

        True from a notice on, when `should_stop` still waits for the save.
        """
        return self._noticed or self.should_stop

    @property
    def should_stop(self) -> bool:
        """Training should leave its loop: a notice came and its save has ended, or a newer attempt took over.

        A save that cannot be durable before the end counts as ended: it is not begun, or given up.
        """
        return self._saved_after_notice or self._desk.ends_unsaved or self._desk.stopped

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 0; 75 after a preemption save, so that supervisors start it again."""
        if self._desk.stopped:
            return EXIT_REPLACED
        return EXIT_PREEMPTED if self._noticed else 0

    @property
    def last_save(self) -> SaveReport | None:
        """How the newest save ended; its `reason` is None if it was committed."""
        return self._last_save

    @property
    def num_ungoverned(self) -> int:
        """Saves written with no right but the job's own, because no coordinator had ever answered."""
        return self._desk.num_ungoverned

    def _snapshot(self, step: int, state: State) -> None:
        try:
            self._begin_save(step, state)
        except Exception:
            _log.exception("step %d was not saved: unexpected error beside training", step)

    def _begin_save(self, step: int, state: State) -> None:
        permit = self._desk.begin_snapshot()
        if permit is None:
            return
        self._settled.clear()
        self._tell(SaveStarted(now_s=self._clock.now(), step=step))
        result = self._saver.begin(
            step,
            state,
            permit.throttle,
            on_first_byte=self._desk.first_byte,
            on_end=self._save_over,
            lease=permit.fence,
            max_streams=permit.max_streams,
        )
        self._watch.flush_begins()
        result.add_done_callback(self._tidy_up)

    def _save_over(self, report: SaveReport) -> None:
        """The lease can be given back; on the disk there is still something to do."""
        self._last_save = report
        self._desk.save_ended(report, self._own_period)
        if report.committed:
            self._lookout.save_takes(report.at_work_s)
        self._saved_after_notice = self._noticed and not self._desk.owes_a_save

    def _tidy_up(self, result: "Future[SaveReport]") -> None:
        try:
            report = result.result()
            if report.committed:
                self._janitor.poke()
            elif report.reason is FailReason.SUPERSEDED and self._is_fenced():
                self._desk.stop("a newer attempt has claimed the root")
        finally:
            self._settled.set()

    # -- figures and plans -------------------------------------------------------------------------------------

    def _warm_up(self, state: State) -> None:
        """Cold-start figures, and buffers that no save has to pay for. What fails here would fail in a save too."""
        try:
            lacks = self._lookout.memory(self._need(tensor_bytes(state)))
            if lacks is None:
                self._desk.stall_known(self._saver.warm_up(state))
            else:
                _log.warning("no buffers are prepared for saves: %s", lacks.detail)
        except Exception as error:
            _log.warning("the state cannot be saved as it is: %s", error)
        self._learn_size(state)

    def _learn_size(self, state: State) -> None:
        self._sized = True
        try:
            num_bytes = tensor_bytes(state)
        except Exception as error:
            _log.warning("the size of the state is not known before its first save: %s", error)
            return
        self._desk.size_known(num_bytes)

    def _own_period(self, figures: Figures) -> float:
        """The interval that the job would choose alone, from what was measured so far."""
        settings = self._settings
        stall_s = DEFAULT_STALL_S if figures.stall_s is None else figures.stall_s
        load = interval.Load(
            num_bytes=figures.num_bytes or 0,
            num_gpus=settings.num_gpus,
            cost_s=interval.cost(stall_s, figures.at_work_s or 0.0, figures.eps, synchronous=False),
            mtbf_s=settings.mtbf_s or interval.mtbf(settings.num_gpus),
            write_s=figures.write_s or 0.0,
            minimum_s=settings.interval_min_s or 0.0,
            wish_s=settings.interval_max_s,
        )
        return load.own_period_s

    def _kept_plan(self) -> Plan | None:
        try:
            content = self._root.read_plan_bytes()
            return None if content is None else decode(Plan, content)
        except (OSError, ProtocolError) as error:
            _log.warning("the plan kept under the root is of no use: %s", error)
            return None

    def _keep_plan(self, plan: Plan | None) -> None:
        """Keep the plan for a start without coordinator; None = forget it."""
        try:
            if plan is None:
                self._root.remove_plan()
            else:
                self._root.write_plan_bytes(encode(plan))
        except OSError as error:
            _log.warning("the plan could not be kept under the root: %s", error)

    # -- attempts ----------------------------------------------------------------------------------------------

    def _is_fenced(self) -> bool:
        newest = self._root.newest_claim()
        return newest is not None and newest.number > self._claim.number

    def _reclaim(self, at_least: int) -> Claim:
        self._claim = self._saver.claim = self._root.claim_attempt(at_least)
        return self._claim

    # -- notices and events ------------------------------------------------------------------------------------

    def _on_notice(self) -> None:
        self._noticed = True
        self._desk.notice()

    def _tell(self, event: Event) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            _log.exception("on_event failed")


def _not_started(_step: int) -> None:
    raise ConfigError("the checkpointer was not started: use `with rampmeter.Checkpointer(...) as ckpt:`")


def _refuse_many_ranks() -> None:
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and torch.distributed.get_world_size() > 1:
        raise ConfigError(
            "this release checkpoints single-process jobs; torch.distributed is initialised with "
            f"{torch.distributed.get_world_size()} ranks"
        )
