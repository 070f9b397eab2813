"""A job of several ranks, each a real process with a `Checkpointer`: a training loop as a user writes it.

`python -m support.crew_job` imports torch once, then forks the ranks of each job that it is told on stdin (JSON, one a
line). Each rank tells on stdout what happens to it, one JSON object a line. The parent only starts and reaps.
"""

import dataclasses
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

import rampmeter.checkpointer  # noqa: F401 - imported once, before the ranks are forked
from rampmeter import Checkpointer
from rampmeter.core.errors import RampmeterError
from rampmeter.ranks import group as group_module
from rampmeter.ranks import liveness
from rampmeter.ranks import team as team_module

SILENT_S = 4.0
COLLECTIVE_LIMIT_S = 8.0
"""Both shorter than in the product, so that tests are; still long for a machine that is busy with other tests."""


class Rank:
    """One rank of a job; `job` is what the parent was told."""

    def __init__(self, rank, job):
        self.rank = rank
        self.job = job

    def tell(self, what, **more):
        line = json.dumps({"rank": self.rank, "what": what, **more}) + "\n"
        os.write(1, line.encode())

    def mine(self, name, default=None):
        """An option of the job that may differ by rank."""
        value = self.job.get(name, default)
        return value[self.rank] if isinstance(value, list) else value

    def run(self):
        torch.set_num_threads(1)
        if self.job["num_ranks"] > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{self.job['file']}",
                rank=self.rank,
                world_size=self.job["num_ranks"],
            )
        try:
            with Checkpointer(
                root=self.mine("root"),
                job="crew",
                seed=self.mine("seed", self.rank),
                on_event=lambda event: self.tell(type(event).__name__, event=_plain(event)),
                **self.job.get("options", {}),
            ) as ckpt:
                self.train(ckpt)
            self.tell("closed", exit_code=ckpt.exit_code)
            sys.exit(ckpt.exit_code)
        except RampmeterError as error:
            self.tell("refused", error=f"{type(error).__name__}: {error}")
            sys.exit(2)

    def train(self, ckpt):
        state = self.state = self.make_state()
        self.tell("begun", pid=os.getpid())
        begun_s = time.monotonic()
        step = (ckpt.restore(state) or 0) if self.job.get("restores") else 0
        took_s = time.monotonic() - begun_s
        self.tell("started", pid=os.getpid(), step=step, sums=self.sums(), took_s=took_s)
        step += self.mine("ahead", 0)
        end_s = time.monotonic() + self.mine("limit_s", 60.0)
        seen = writer = None
        slowest = 0.0
        self.limit_files(self.mine("largest_file"))
        while not ckpt.should_stop and not Path(self.job["end"]).exists() and time.monotonic() < end_s:
            time.sleep(self.mine("step_s", 0.01))
            if self.job.get("in_step"):
                dist.barrier()  # as a collective of training would: nobody is a call ahead of another
            step += 1
            for index, tensor in enumerate(self.tensors()):
                tensor.fill_(step + index / 8)
            before = time.monotonic()
            ckpt.step(step, state)
            slowest = max(slowest, time.monotonic() - before)
            if ckpt._saver._route._guardian.pid not in (writer, None):
                writer = ckpt._saver._route._guardian.pid
                self.tell("hired", writer=writer)
            if ckpt.last_save is not None and ckpt.last_save is not seen:
                seen = ckpt.last_save
                self.tell("saved", step=seen.step, reason=seen.reason, committed=seen.committed)
                self.limit_files(None)
        self.tell("left", step=step, slowest_s=slowest)

    def limit_files(self, num_bytes):
        """The kernel refuses whatever is longer, as a quota does; None = nothing."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes or hard, hard))

    def make_state(self):
        """Each rank has tensors of its own name, as in pipeline parallel training, and all share one."""
        own = {
            f"rank{self.rank}.{index}": torch.zeros(self.mine("num_floats", 250_000))
            for index in range(self.mine("num_tensors", 4))
        }
        note = threading.Lock() if self.mine("cannot_be_saved") else "same on all"
        more = {self.mine("extra_key"): torch.zeros(10)} if self.mine("extra_key") else {}
        return {"own": own, "shared": torch.zeros(1000), "note": note, **more}

    def tensors(self):
        yield from self.state["own"].values()
        yield self.state["shared"]

    def sums(self):
        return [float(tensor.double().sum()) for tensor in self.tensors()]


def _plain(event):
    return {field.name: str(getattr(event, field.name)) for field in dataclasses.fields(event)}


def run_job(job):
    pids = []
    for rank in range(job["num_ranks"]):
        pid = os.fork()
        if pid == 0:
            code = 1
            logging.basicConfig(level=logging.INFO, format=f"rank {rank} %(message)s", force=True)
            try:
                Rank(rank, job).run()
            except SystemExit as leaving:
                code = leaving.code or 0
            except BaseException:
                logging.exception("rank %d", rank)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    for rank, pid in enumerate(pids):
        _, status = os.waitpid(pid, 0)
        said = {"rank": rank, "what": "exited", "code": os.waitstatus_to_exitcode(status)}
        os.write(1, (json.dumps(said) + "\n").encode())
    os.write(1, b'{"rank": -1, "what": "over"}\n')


if __name__ == "__main__":
    group_module.COLLECTIVE_LIMIT_S = COLLECTIVE_LIMIT_S
    liveness.SILENT_S = team_module.SILENT_S = SILENT_S
    for line in sys.stdin:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_job(json.loads(line))
