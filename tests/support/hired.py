"""Saves by a writer process, without a coordinator: what a saver does around one; a writer that can be held."""

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from rampmeter.commit import SaveRecord
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import CommitError
from rampmeter.daemon.arena import Arena
from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.parcel import Order
from rampmeter.layout import Root, StepName
from rampmeter.manifest import Extras
from rampmeter.provenance import Provenance
from rampmeter.state import snapshot
from rampmeter.throttle import Throttle
from support.waiting import wait_for

CLOCK = SystemClock()
GATE = "RAMPMETER_TEST_GATE"
"""Names a file for as long as which `HeldBeforeCommit` waits with what follows the last byte."""


MIB = 1024 * 1024
LIMIT_S = 200.0


def at_rate(bytes_per_s, until_s=None):
    """A throttle that is open from the start."""
    throttle = Throttle()
    throttle.set_rate(bytes_per_s, until_s)
    return throttle


def failed(future, limit_s=LIMIT_S):
    """The reason for which a save failed."""
    error = future.exception(limit_s)
    assert isinstance(error, CommitError), error
    return error.reason


def no_checkpoint(root):
    return root.committed_steps() == []


class HeldBeforeCommit(FileSystemWriter):
    """Its last step waits until the gate is taken away."""

    def finish(self, metadata, results):
        wait_for(lambda: not Path(os.environ[GATE]).exists(), what="the gate")
        super().finish(metadata, results)


class Desk:
    """Makes saves of one attempt through a guardian; each in a thread of its own, as the saver does."""

    def __init__(self, root: Root, guardian: Guardian, claim=None) -> None:
        self.root = root
        self.uid = root.ensure_job_uid()
        self.claim = claim or root.claim_attempt()
        self.guardian = guardian
        self.arena = Arena(CLOCK)
        self.first_bytes: list[int] = []

    def begin(
        self, step, state, throttle=None, *, writer_class=None, check_finite=True
    ) -> "Future[StepName]":
        """The staging is over when this returns; the future fails as the save does."""
        if throttle is None:
            throttle = at_rate(None)
        placed = self.arena.stage(snapshot(state, step=step))
        name = StepName.fresh(step=step, attempt=self.claim.number)
        record = SaveRecord(
            job_uid=self.uid,
            job="test",
            name=name,
            claim=self.claim,
            parent=None,
            world_size=1,
            extras=Extras(data_position=False, rng=True),
            provenance=Provenance.of(None, None),
            torch_version=torch.__version__,
        )

        def order(number):
            return Order(
                number=number,
                root=self.root.path,
                record=record,
                writer_class=writer_class,
                max_streams=None,
                check_finite=check_finite,
                fence=None,
                begun_at_s=CLOCK.now(),
                stage_s=self.arena.last_stage_s,
                stall_s=0.0,
            )

        result: Future[StepName] = Future()

        def run():
            try:
                self.guardian.save(order, placed, self.arena, throttle, self.first_bytes.append)
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(name)

        threading.Thread(target=run, daemon=True).start()
        return result
