"""One save from snapshot to commit, without ever holding training up for more than the staging.

One save is in flight at a time; its buffers are kept for the next one. Nothing here raises into training; what the end
of a save means is for `aftermath` to say. In a job of many ranks each makes its share, and rank 0 alone commits.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.aftermath import Aftermath
from rampmeter.commit import SaveRecord, WrittenFile, commit
from rampmeter.completeness import Completeness
from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.errors import CommitError
from rampmeter.core.messages import FailReason, Fence
from rampmeter.daemon.following import Company
from rampmeter.daemon.mode import Mode
from rampmeter.daemon.parcel import Order
from rampmeter.daemon.route import ProcessRoute
from rampmeter.failing import reason_of
from rampmeter.flushed import flush_record
from rampmeter.flushthread import HUNG_S
from rampmeter.inflight import Save
from rampmeter.layout import Claim, Root, StepName
from rampmeter.manifest import Extras, KeyNorm, read_manifest
from rampmeter.norms import NormLimit
from rampmeter.provenance import Provenance
from rampmeter.ranks.words import Beside
from rampmeter.report import SaveReport
from rampmeter.standstill import moves, watch_over
from rampmeter.state import State, has_data_position, resolve, snapshot
from rampmeter.throttle import Throttle
from rampmeter.together import CourseTogether, Rank, Together

_log = logging.getLogger("rampmeter")
_ABORT_LIMIT_S = 5.0
_HUNG_ABORT_S = 0.5
"""For one that was aborted: it may have to end a write, and no more."""


class Saver:
    """Makes checkpoints of one attempt. Used by the training thread; reports come from the flush thread."""

    def __init__(
        self,
        root: Root,
        claim: Claim,
        *,
        job: str,
        rank: Rank | None = None,
        parent: StepName | None = None,
        config: Mapping[str, Any] | None = None,
        code_commit: str | None = None,
        check_finite: bool = True,
        max_norm_ratio: float | None = None,
        writer_class: type | None = None,
        mode: Mode = Mode.AUTO,
        clock: Clock | None = None,
    ) -> None:
        self.claim = claim
        self.parent = parent
        self._root = root
        self._job = job
        self._rank = rank or Rank()
        self._job_uid = root.ensure_job_uid()
        self._provenance = Provenance.of(config, code_commit)
        self._completeness = Completeness(self._provenance)
        self._check_finite = check_finite
        self._max_norm_ratio = max_norm_ratio
        self._norms_before: tuple[KeyNorm, ...] = ()
        self._writer_class = writer_class
        self._clock = clock or SystemClock()
        self._stager = dcp.ReusedStager(self._clock)
        self._route = ProcessRoute(
            mode, writer_class=writer_class, num_ranks=self._rank.num_ranks, clock=self._clock
        )
        self._current: Save | None = None
        self._aftermath = Aftermath(root, is_first=self._rank.number == 0, clock=self._clock)

    def go_on_from(self, parent: StepName | None, norms: tuple[KeyNorm, ...]) -> None:
        """What training holds came from the checkpoint `parent`, and its tensors had these norms then."""
        self.parent, self._norms_before = parent, norms

    def go_on_as(self, claim: Claim) -> None:
        """Saves that begin from now on are this claim's."""
        self.claim = claim

    @property
    def in_flight(self) -> bool:
        """Whether a save is still being written."""
        return self._current is not None

    @property
    def has_buffers(self) -> bool:
        """Whether the memory for the copy of the state has been taken."""
        return self._stager.last_stage_s > 0.0 or self._route.last_stage_s > 0.0

    def warm_up(self, state: State) -> float:
        """Stage twice and throw it away; the seconds of the second time: the stall that a save will cause.

        The first time pays for the buffers, so that no save has to. Raises what a save would report.
        """
        parts = self._parts_of(state)
        for _ in range(2):
            before_s = self._clock.now()
            self._stage(self._snapshot(parts, step=0))
        return self._clock.now() - before_s

    def look_at(self, state: State) -> None:
        """Find out for `beside`, before the first save, how such a state goes. What fails here fails in a save, too."""
        try:
            content = self._snapshot(self._parts_of(state), step=0)
        except Exception as error:
            self._route.note_obstacle(f"its state cannot be saved: {error}")
            return
        if self._route.is_for(content):
            self._route.warm_up()

    def hurry(self) -> None:
        """The job is about to end: no save waits for a process that is not there. Takes no lock."""
        self._route.hurry()

    def beside(self) -> Beside:
        """What the other ranks should know of a process that writes for this one."""
        return self._route.beside

    def _stage(self, state: Mapping[str, Any]) -> None:
        if self._goes_beside(state, None):
            self._route.stage(state)
        else:
            self._stager.stage(dict(state))

    def _goes_beside(self, state: Mapping[str, Any], together: Together | None) -> bool:
        """Whether a process beside training writes this snapshot: of many ranks that is agreed on.

        The buffers of the other way are given back.
        """
        is_agreed = together is not None and together.party is not None
        goes = is_agreed or (self._route.is_for(state) and together is None)
        if not goes:
            self._route.give_back()
        elif self._stager.last_stage_s > 0.0:
            self._stager = dcp.ReusedStager(self._clock)
        return goes

    def begin(
        self,
        step: int,
        state: State,
        throttle: Throttle,
        on_first_byte: Callable[[int], None] = lambda _num_bytes: None,
        *,
        on_end: Callable[[SaveReport], None] = lambda _report: None,
        lease: Fence | None = None,
        max_streams: int | None = None,
        together: Together | None = None,
    ) -> "Future[SaveReport]":
        """Take the snapshot and let a thread write it. Returns after the staging; raises only what interrupts training.

        `throttle` must be new. `on_first_byte` is called once, from the flush thread, with the bytes of the tensors to
        write; `on_end` with the report, before leftovers are removed: storage in trouble may take long for that, and no
        lease must wait for it. While another save is in flight the answer is a report with the reason `in_flight`.
        `max_streams` bounds the writing threads; None = no bound. `together` is for jobs of many ranks.
        """
        name = together.name if together else StepName.fresh(step=step, attempt=self.claim.number)
        save = Save(
            name=name,
            throttle=throttle,
            on_first_byte=on_first_byte,
            on_end=on_end,
            fence=lease,
            max_streams=max_streams,
            together=together,
            begun_at_s=self._clock.now(),
        )
        if self._current is None:
            self._current = save
            self._begin(save, state)
        else:
            self._refuse(save)
        return save.result

    def _begin(self, save: Save, state: State) -> None:
        together = save.together
        if together is not None:
            save.course = CourseTogether(
                joined=lambda: save.joined,
                throttle=save.throttle,
                on_failed=lambda error: self._failed_early(save, error),
            )
        try:
            upload = self._start(save, state)
        except BaseException as error:
            if together is not None:
                together.cannot(f"{type(error).__name__}: {error}", reason_of(error))
            self._end(save, error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C is training's, and this save has ended
        else:
            save.stall_s = self._clock.now() - save.begun_at_s
            save.joined = together.join() if together else None
            save.begun.set()
            upload.add_done_callback(lambda done: self._end(save, done.exception()))

    def _refuse(self, save: Save) -> None:
        if save.together is not None:
            save.together.cannot("its last save is still in flight", FailReason.IN_FLIGHT)
        report = save.as_report(FailReason.IN_FLIGHT, self._clock.now())
        save.on_end(report)
        save.result.set_result(report)

    def close(self, limit_s: float) -> bool:
        """Wait up to `limit_s` for the save in flight, while it moves, then abort it. Says whether none was aborted."""
        save = self._current
        finished = True
        if save is not None:
            finished = moves(save.result, save, self._clock, limit_s=limit_s, hung_s=HUNG_S)
            if not finished:
                save.throttle.abort("closing")
                moves(save.result, save, self._clock, limit_s=_ABORT_LIMIT_S, hung_s=_HUNG_ABORT_S)
        self._stager.close()
        self._route.close(hangs=not finished)
        return finished

    def _start(self, save: Save, state: State) -> "Future[Any]":
        parts = self._parts_of(state)
        record = SaveRecord(
            job_uid=self._job_uid,
            job=self._job,
            name=save.name,
            claim=self.claim,
            parent=self.parent,
            world_size=self._rank.num_ranks,
            extras=Extras(data_position=has_data_position(parts), rng=True),
            provenance=self._provenance,
            torch_version=torch.__version__,
            norm_limit=self._norm_limit(parts),
        )
        content = self._snapshot(parts, save.name.step)
        if self._goes_beside(content, save.together):
            return self._start_beside(save, record, content)
        upload = dcp.start_save(
            content,
            **self._tools(save, record),
            stager=self._stager,
            process_group=self._rank.group(),
            single_process=save.together is None,
            before=partial(self._before_flush, save),
        )
        save.stage_s = self._stager.last_stage_s
        watch_over(upload, save, self._clock, partial(self._hangs, save))
        return upload

    def _tools(self, save: Save, record: SaveRecord) -> dict[str, Any]:
        """What a thread of this process writes with."""
        writer = dcp.metered_writer(
            self._root.directory(save.name),
            throttle=save.throttle,
            course=save.course,
            on_first_byte=partial(self._note_first_byte, save),
            finish=partial(self._commit, save, record),
            writer_class=self._writer_class,
            max_streams=save.max_streams,
        )
        planner = dcp.CheckedSavePlanner(check=self._check_finite, with_norms=record.norm_limit is not None)
        return {"writer": writer, "planner": planner}

    def _write_here(self, save: Save, record: SaveRecord, content: dict[str, Any]) -> None:
        self._before_flush(save)
        dcp.save_here(content, single_process=True, **self._tools(save, record))

    def _norm_limit(self, parts: Mapping[str, Any]) -> NormLimit | None:
        """Optimizers are not compared: their moments follow the gradients, which rightly change tenfold."""
        if self._max_norm_ratio is None:
            return None
        compared = [part for part in self._norms_before if not isinstance(parts.get(part.key), Optimizer)]
        return NormLimit(max_ratio=self._max_norm_ratio, before=tuple(compared))

    def _snapshot(self, parts: State, step: int) -> dict[str, Any]:
        return snapshot(parts, step=step, rank=self._rank.number, world_size=self._rank.num_ranks)

    def _start_beside(self, save: Save, record: SaveRecord, content: dict[str, Any]) -> "Future[Any]":
        """The same by a process beside training, which commits it, too."""
        placed = self._route.stage(content)
        save.stage_s = self._route.last_stage_s
        course = save.course
        return self._route.start(
            placed,
            partial(self._order, save, record),
            throttle=save.throttle,
            on_first_byte=partial(self._note_first_byte, save),
            on_committed=partial(self._note_committed, save),
            write_here=partial(self._write_here, save, record),
            company=Company(course, save.counters) if isinstance(course, CourseTogether) else None,
        )

    def _order(self, save: Save, record: SaveRecord, number: int) -> Order:
        """Asked when the writer is there; given once those of all other ranks are, too."""
        told = None if save.together is None else save.together.party
        party = None if told is None else self._route.party_here(told)
        self._before_flush(save)
        return Order(
            number=number,
            root=self._root.path.absolute(),
            record=record,
            writer_class=self._writer_class,
            max_streams=save.max_streams,
            check_finite=self._check_finite,
            fence=save.fence,
            begun_at_s=save.begun_at_s,
            stage_s=save.stage_s,
            stall_s=save.stall_s,
            party=party,
        )

    def _note_committed(self, save: Save) -> None:
        if self._rank.number == 0:
            save.manifest = read_manifest(self._root.directory(save.name))

    def _before_flush(self, save: Save) -> None:
        """A flush that runs at once would take the interpreter lock from training, which is about to go on."""
        save.begun.wait(_ABORT_LIMIT_S if save.together is None else None)
        save.course.begin()

    def _hangs(self, save: Save, why: str) -> None:
        """The storage holds the flush, for as long as it likes; neither the lease nor the other ranks wait for it."""
        error = CommitError(why, reason=FailReason.NO_PROGRESS)
        save.course.failed(error)
        save.throttle.abort(FailReason.NO_PROGRESS)
        self._aftermath.tell(save, error)

    def _failed_early(self, save: Save, error: BaseException) -> None:
        """One rank has failed: what all ranks still say to each other may take long, and no lease waits for it."""
        save.throttle.abort(FailReason.RANK_FAILED)
        self._aftermath.tell(save, error)

    def _parts_of(self, state: State) -> Mapping[str, Any]:
        parts = resolve(state)
        if self._rank.number == 0:
            self._completeness.tell(parts)
        return parts

    def _note_first_byte(self, save: Save, num_bytes: int) -> None:
        save.lead_s = self._clock.now() - save.begun_at_s
        save.on_first_byte(num_bytes)

    def _commit(
        self,
        save: Save,
        record: SaveRecord,
        written: Sequence[WrittenFile],
        unchecked: Sequence[str],
        norms: Sequence[KeyNorm],
    ) -> None:
        if save.report is not None:
            raise CommitError("it was told as failed while the storage hung", reason=FailReason.NO_PROGRESS)
        save.throttle.end()
        counters = save.counters()
        flush = flush_record(
            written=written,
            unchecked=unchecked,
            norms=norms,
            fence=save.fence,
            counters=counters,
            stage_s=save.stage_s,
            stall_s=save.stall_s,
            lead_s=save.lead_s,
            write_s=self._clock.now() - save.begun_at_s,
        )
        save.manifest = commit(self._root, record, flush, clock=self._clock)

    def _end(self, save: Save, error: BaseException | None) -> None:
        """The save is over, one way or the other. Runs on the flush thread, or on the caller's if nothing started."""
        save.throttle.end()
        failure = self._aftermath.failure(save, error)
        if failure is None:
            norms = None if save.manifest is None else save.manifest.norms
            self.go_on_from(save.name, norms or ())
        try:
            self._aftermath.tell(save, failure)
            self._aftermath.tidy_up(save, failure)
        except Exception:
            _log.exception("the end of the save of step %d was not told as it should be", save.name.step)
        finally:  # whatever has happened: the next save can be made
            self._current = None
            if save.joined is not None:
                save.joined.end(failure, needs_group=save.uses_group and dcp.ends_group(error))
            if save.report is None:
                save.result.set_exception(RuntimeError("the save has ended without a report"))
            else:
                save.result.set_result(save.report)
