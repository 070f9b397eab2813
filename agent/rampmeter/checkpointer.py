"""The object that a training loop holds: `restore`, `step`, `should_stop`, `exit_code`.

Puts the parts together and keeps its promises to training: `step` looks at one flag unless a snapshot is wanted, and
nothing of ours raises into the loop after the start. Decides nothing about time or rates: the pacer and the keeper do.
In a job of many ranks each has one; rank 0 alone has a spokesman and removes what is old.
"""

import concurrent.futures
import logging
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rampmeter.comeback import restore_in_turn
from rampmeter.config import Beliefs, Bounds, Names, job_settings, last_part, whole_or_none
from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.errors import ConfigError, RestoreError, SavesFailing
from rampmeter.core.messages import EndReason, Survives
from rampmeter.core.proving import DEFAULT_EVERY_S, Proving
from rampmeter.daemon.mode import Mode
from rampmeter.events import Event, Restored
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.forking import Home
from rampmeter.janitor import Janitor
from rampmeter.layout import Claim, Root, StepName
from rampmeter.leaving import EXIT_PREEMPTED, ExitWatch, reason_of_end
from rampmeter.misplaced import refuse_misplaced
from rampmeter.norms import checked_ratio
from rampmeter.preflight.lookout import Lookout
from rampmeter.ranks.crew import REPLACED, Crew
from rampmeter.ranks.opening import num_ranks, open_together
from rampmeter.ranks.team import Hooks
from rampmeter.report import SaveReport
from rampmeter.rereading.rereader import Rereader
from rampmeter.restore import RestoredCheckpoint
from rampmeter.retention import Keep
from rampmeter.rollback import Choice, note_choice, withdraw_choice
from rampmeter.saving import Saver
from rampmeter.signals import NoticeSignals
from rampmeter.speaking import Spokesman
from rampmeter.state import State
from rampmeter.stepnumber import StepNumbers
from rampmeter.stepwatch import StepWatch
from rampmeter.taking import Taking
from rampmeter.together import Rank

_log = logging.getLogger("rampmeter")

EXIT_REPLACED = 1
DEFAULT_CLOSE_LIMIT_S = 60.0
_RETENTION_LIMIT_S = 5.0
_FORGET_LIMIT_S = 1.0


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
    verify_every_s           how often one checkpoint is read back from storage beside training, to know that it has
                             been kept (an hour, or 10 commits if that is sooner); None = never
    writer_class             a FileSystemWriter class to write through, for storage that is not a mounted directory
    mode                     who writes: `thread` of training, `process` beside it, or `auto`: a process where the state
                             has more than 200 tensors, which in a thread would slow training
    config, code_commit      recorded in the manifest; the commit also from RAMPMETER_CODE_COMMIT, the container's
                             digest from RAMPMETER_CONTAINER_DIGEST
    max_norm_ratio           a state is not saved if the norm of one of its parts, optimizers left out, is more than so
                             many times larger or smaller than in the checkpoint before; None = no norm is computed
    raise_after              so many failed saves in a row make `step` raise SavesFailing; None = training goes on
    on_event                 called with `rampmeter.events` values, from training's thread and from the agent's: it must
                             be quick, for training waits for it; what it raises is logged

    Raises ConfigError at the start; later only `restore` raises, and `step` if asked to. For use in a `with` statement.
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
        verify_every_s: float | None = DEFAULT_EVERY_S,
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
        max_norm_ratio: float | None = None,
        raise_after: int | None = None,
        on_event: Callable[[Event], None] | None = None,
        seed: int | None = None,
    ) -> None:
        self._settings = job_settings(
            Names(job=job, pool=pool, coordinator=coordinator, tenant=tenant, default=last_part(root)),
            Beliefs(num_gpus=num_gpus, mtbf_s=mtbf_s, restart_s=restart_s, survives=survives),
            Bounds(interval_min_s=interval_min_s, interval_max_s=interval_max_s, notice_s=notice_s),
            num_ranks=num_ranks(),
        )
        checks = partial(Saver, check_finite=check_finite, max_norm_ratio=checked_ratio(max_norm_ratio))
        saver = partial(checks, mode=Mode.of(mode), writer_class=writer_class)
        self._saver_for = partial(saver, config=config, code_commit=code_commit)
        self._keep = Keep(keep=keep, keep_days=keep_days, milestone_steps=milestone_steps)
        self._raise_after = whole_or_none("raise_after", raise_after)
        self._listener = on_event
        self._make_parts(root, verify_every_s, random.Random(seed))

    def _make_parts(
        self, root: str | os.PathLike[str], verify_every_s: float | None, rng: random.Random
    ) -> None:
        """Those that neither look at the root nor speak to anybody: all others are made by `__enter__`."""
        if not str(root):
            raise ConfigError("root is empty: name the directory that holds this job's checkpoints")
        self._clock: Clock = SystemClock()
        self._proving = Proving(verify_every_s, now_s=self._clock.now())
        self._root = Root(Path(root).absolute(), clock=self._clock)  # wherever training goes later
        self._rng = rng
        self._steps = StepNumbers()
        self._signals = NoticeSignals(self._on_notice)
        self._exit_watch = ExitWatch(self._leave)
        self._crew: Crew | None = None
        self._taking: Taking | None = None
        self._choice: Choice | None = None
        self._closed = False

    # -- life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._taking is not None:
            raise ConfigError("this Checkpointer was in a `with` statement before: make a new one for each")
        self._home = Home()
        job_uid, claim = self._open()
        rank = self._crew.rank if self._crew is not None else Rank()
        self._saver = self._saver_for(
            self._root, claim, job=self._settings.name, rank=rank, clock=self._clock
        )
        self._watch = StepWatch(self._clock)
        self._taking = Taking(
            self._saver,
            lookout=Lookout(self._root.path),
            watch=self._watch,
            clock=self._clock,
            tell=self._tell,
            crew=self._crew,
        )
        if rank.number == 0:
            self._start_speaking(self._taking, job_uid, claim)
        if self._crew is not None:
            taking = self._taking
            hooks = Hooks(
                noticed=lambda rank: taking.notice(f"rank {rank} was told to end"),
                wish=taking.wish,
                ready=taking.all_ready,
                beside=self._saver.beside,
            )
            self._crew.start(hooks)
        self._signals.install()
        self._exit_watch.start()
        return self

    def _open(self) -> tuple[str, Claim]:
        """The job's identity and the claim of this attempt; with the other ranks, if there are any."""
        if num_ranks() == 1:
            return self._claim_root()
        opened = open_together(self._root, self._claim_root, self._clock)
        self._crew = Crew(opened, clock=self._clock)
        return opened.job_uid, opened.claim

    def _claim_root(self) -> tuple[str, Claim]:
        try:
            refuse_misplaced(self._root)
            return self._root.ensure_job_uid(), self._root.claim_attempt()
        except OSError as error:
            raise ConfigError(f"root {self._root.path}: {error}") from error

    def _start_speaking(self, taking: Taking, job_uid: str, claim: Claim) -> None:
        voice = Spokesman(
            self._root,
            self._settings,
            job_uid=job_uid,
            claim=claim,
            clock=self._clock,
            rng=self._rng,
            watch=self._watch,
            look=taking.look,
            tell=self._tell,
            on_claim=self._saver.go_on_as,
        )
        rereader = Rereader(
            self._root,
            voice.desk.reader,
            self._proving,
            clock=self._clock,
            is_fenced=voice.is_fenced,
            tell=self._tell,
        )
        janitor = Janitor(
            self._root, self._keep, attempt=claim.number, is_fenced=voice.is_fenced, reading=rereader.reading
        )
        taking.start_speaking(voice, janitor, rereader)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(reason=reason_of_end(error))

    def close(
        self, limit_s: float = DEFAULT_CLOSE_LIMIT_S, *, reason: EndReason = EndReason.FINISHED
    ) -> None:
        """Wait up to `limit_s` for the save in flight, then say goodbye. The second call does nothing."""
        if self._closed or (self._taking is not None and self._home.is_elsewhere):
            return
        self._closed = True
        self._signals.restore()
        taking = self._started
        taking.close(limit_s, _RETENTION_LIMIT_S)
        has_only_looked = reason is EndReason.FINISHED and self._watch.first_step_s is None
        if self._choice is not None and has_only_looked and not taking.is_noticed:
            forget = in_thread_of_its_own(partial(withdraw_choice, self._root, self._choice))
            concurrent.futures.wait([forget], _FORGET_LIMIT_S)  # a root that hangs must not hold the end up
        if taking.voice is not None:
            taking.voice.close(EndReason.PREEMPTED if taking.is_noticed else reason)
        if self._crew is not None:
            self._crew.leave()
        self._exit_watch.stop()

    def _leave(self) -> None:
        """The interpreter exits and nobody has closed us."""
        _log.warning("the process ends without close(): use `with rampmeter.Checkpointer(...)`; closing now")
        self.close(reason=EndReason.FAILED)

    @property
    def _started(self) -> Taking:
        if self._taking is None:
            raise ConfigError(
                "the checkpointer was not started: use `with rampmeter.Checkpointer(...) as ckpt:`"
            )
        return self._taking

    # -- training ----------------------------------------------------------------------------------------------

    def restore(self, state: State, *, step: int | None = None, fresh: bool = False) -> int | None:
        """Load the newest whole checkpoint into `state` (or exactly `step`); its step, or None if there is none.

        Waits for a read slot as long as the coordinator answers, and for up to half a minute where it does not; the
        ranks of a job of several share one.

        Raises RestoreError if there are checkpoints but none can be loaded, ForeignCheckpoints if the root holds
        another writer's and `fresh` is not said, SystemExit(75) if the end of the job is announced before all is read.
        Nothing is touched then. In a job of many ranks all call it at once, and get the same answer or the same error.
        """
        taking = self._started
        if self._home.is_elsewhere:
            raise RestoreError("a forked child cannot load for its job: make a Checkpointer of its own there")
        begun_s = self._clock.now()
        reader = None if taking.voice is None or self._closed else taking.voice.desk.reader
        found = restore_in_turn(
            self._root, state, step=step, fresh=fresh, reader=reader, crew=self._crew, clock=self._clock
        )
        if found is not None and taking.voice is not None:
            load_s = self._clock.now() - begun_s
            taking.voice.desk.restored(found.step, load_s=load_s, rolled_back=found.rolled_back)
        taking.warm_up(state)
        if found is None:
            return None
        self._go_on_from(found, by_name=step is not None)
        self._tell(
            Restored(
                now_s=self._clock.now(), step=found.step, directory=found.directory, skipped=found.skipped
            )
        )
        return found.step

    def _go_on_from(self, found: RestoredCheckpoint, *, by_name: bool) -> None:
        name = StepName.parse(found.directory)
        self._saver.go_on_from(name, found.norms)
        voice = self._started.voice
        if voice is None or name is None:
            return
        if self._started.has_saved:
            voice.claim_anew()
        if by_name:
            self._choice = Choice(attempt=voice.claim.number, name=name)
            note_choice(self._root, self._choice)

    def step(self, step: int, state: State) -> None:
        """Say that training has done `step`; takes the snapshot of `state` if a save is due and granted.

        Microseconds otherwise. What is no number of a step makes no save. `state` as in `restore`: a callable is called
        only when a save starts. In a job of many ranks all call it equally often and with the same steps.
        """
        taking = self._started
        if self._home.refuses_step():
            return
        number = self._steps.of(step)
        if number is not None:
            self._watch.see(number)
        if self._crew is not None:
            agreed = self._crew.called(number)
            if agreed is not None:
                taking.take(number, state, agreed)
        elif number is not None and taking.wants_snapshot:
            taking.take(number, state, None)
        if not taking.is_sized:
            taking.learn_size(state)
        if self._raise_after is not None and taking.num_failed >= self._raise_after:
            self._give_up(taking)

    def _give_up(self, taking: Taking) -> None:
        last = taking.last_save
        reason = last.reason if last is not None else None
        raise SavesFailing(
            f"{taking.num_failed} saves in a row have failed, the last one of step {last.step if last else '?'} with "
            f"`{reason}`: look at {self._root.path} and at the log; raise_after={self._raise_after} asked for this"
        )

    def poll(self) -> bool:
        """For loops without a state to save, such as an evaluation: leave it, so that `step` can save, or stop.

        True from a notice on, when `should_stop` still waits for the save.
        """
        return self._started.is_noticed or self.should_stop

    @property
    def should_stop(self) -> bool:
        """Training should leave its loop: a notice came and its save has ended, or a newer attempt took over.

        A save that cannot be durable before the end counts as ended: it is not begun, or given up. One that is still
        being written 10 s before the end is waited for by `close`. Many ranks hear it
        in the same call of `step`.
        """
        crew = self._crew
        return self._started.may_stop if crew is None or crew.is_lost else crew.stopped

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 0; 75 after a preemption save, so that supervisors start it again."""
        told = self._crew.stopped_for if self._crew is not None else None
        if told == REPLACED or self._started.is_replaced:
            return EXIT_REPLACED
        return EXIT_PREEMPTED if self._started.is_noticed else 0

    @property
    def last_save(self) -> SaveReport | None:
        """How the newest save ended; its `reason` is None if it was committed."""
        return self._started.last_save

    @property
    def num_ungoverned(self) -> int:
        """Saves and restores with no right but the job's own, because no coordinator answered. Rank 0 counts."""
        voice = self._started.voice
        return voice.desk.num_ungoverned if voice is not None else 0

    # -- notices and events ------------------------------------------------------------------------------------

    def _on_notice(self, what: str) -> None:
        """A signal came: the job ends. On this rank, perhaps on this one alone."""
        if self._crew is not None:
            self._crew.notice()
        self._started.notice(what)

    def _tell(self, event: Event) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise  # training's
            _log.exception("on_event failed")
