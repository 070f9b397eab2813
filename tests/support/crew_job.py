"""A job of several ranks, each a real process with a `Checkpointer`: a training loop as a user writes it.

`python -m support.crew_job` imports torch once, then forks the ranks of each job that it is told on stdin (JSON, one a
line). Each rank tells on stdout what happens to it, one JSON object a line. The parent only starts and reaps.
"""

import dataclasses
import gc
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
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import rampmeter.checkpointer  # noqa: F401 - imported once, before the ranks are forked
from rampmeter import Checkpointer
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import RampmeterError
from rampmeter.ranks import group as group_module
from rampmeter.ranks import liveness
from rampmeter.ranks import team as team_module

SILENT_S = 4.0
COLLECTIVE_LIMIT_S = 8.0
"""Both shorter than in the product, so that tests are; still long for a machine that is busy with other tests."""


class ScriptsOwn(FileSystemWriter):
    """A writer of the training script: a process beside it does not have it."""


class Told(logging.Handler):
    """What the agent warns of is told like all else."""

    def __init__(self, rank):
        super().__init__(logging.WARNING)
        self._rank = rank

    def emit(self, record):
        self._rank.tell("warned", message=record.getMessage(), level=record.levelname)


class Turns:
    """How long training's steps take while a save is in flight, and between saves: in turns, told as they end."""

    def __init__(self, tell):
        self._tell = tell
        self._turn = {"in_flight": False, "num_steps": 0, "seconds": 0.0}
        self._since_s = time.monotonic()
        self._was_in_flight = False

    def stepped(self, in_flight):
        """A step has ended. The one in which a save begins is of its flight: training stands still there."""
        now_s = time.monotonic()
        is_of_flight = in_flight or self._was_in_flight
        if self._turn["in_flight"] != is_of_flight:
            self._tell("turn", **self._turn)
            self._turn = {"in_flight": is_of_flight, "num_steps": 0, "seconds": 0.0}
        self._turn["num_steps"] += 1
        self._turn["seconds"] += now_s - self._since_s
        self._since_s, self._was_in_flight = now_s, in_flight


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
                writer_class=ScriptsOwn if self.mine("has_own_writer") else None,
                **self.job.get("options", {}),
            ) as ckpt:
                if self.rank == 0 and "num_changes" in self.job:
                    threading.Thread(target=self.change_rates, args=(ckpt,), daemon=True).start()
                self.train(ckpt)
            code = ckpt.exit_code
            del ckpt
            self.tell("closed", exit_code=code, left_behind=left_behind())
            sys.exit(code)
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
        turns = Turns(self.tell)
        self.limit_files(self.mine("largest_file"))
        while not self.is_over(ckpt.should_stop or time.monotonic() > end_s):
            time.sleep(self.mine("step_s", 0.01))
            step += 1
            for index, tensor in enumerate(self.tensors()):
                tensor.fill_(step + index / 8)
            if self.mine("has_nan_until_told") and not (seen and seen.reason):
                next(self.tensors())[-1] = float("nan")
            before = time.monotonic()
            ckpt.step(step, state)
            slowest = max(slowest, time.monotonic() - before)
            turns.stepped(ckpt._saver.in_flight)
            if ckpt._saver._route._guardian.pid not in (writer, None):
                writer = ckpt._saver._route._guardian.pid
                self.tell("hired", writer=writer)
            if ckpt.last_save is not None and ckpt.last_save is not seen:
                seen = ckpt.last_save
                self.tell("saved", step=seen.step, reason=seen.reason, committed=seen.committed)
                self.limit_files(None)
        self.tell("left", step=step, slowest_s=slowest)

    def is_over(self, for_this_rank):
        """Whether all is done; in step, as a collective of training would: nobody is a call ahead of another."""
        over = torch.tensor(for_this_rank or Path(self.job["end"]).exists(), dtype=torch.int)
        if self.job.get("in_step"):
            dist.all_reduce(over, op=dist.ReduceOp.MAX)  # or one would leave, and the others wait for it
        return bool(over)

    def change_rates(self, ckpt):
        """Rank 0: lower and raise the job's rate in its first save, and tell how long it takes until all follow."""
        clock, team = SystemClock(), ckpt._crew._team
        while team.conductor.total_bytes is None:
            time.sleep(0.01)
        for turn in range(self.job["num_changes"]):
            begun_s = clock.now()
            version = team.conductor.set_rate(4_000_000 * (1 + turn % 2), None)
            while not team.conductor.have_applied(version) and clock.now() < begun_s + 5.0:
                time.sleep(0.005)
            done = ckpt._saver._current.throttle.counters().done_bytes if ckpt._saver._current else None
            self.tell("followed", seconds=clock.now() - begun_s, done_bytes=done)
        team.conductor.set_rate(None, None)

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


def left_behind():
    """The processes that this one has, and the pieces of memory that it shares with a writer."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:rampmeter" in line]
    return [*children, *maps]


def _plain(event):
    return {field.name: str(getattr(event, field.name)) for field in dataclasses.fields(event)}


def shorten_limits():
    group_module.COLLECTIVE_LIMIT_S = COLLECTIVE_LIMIT_S
    liveness.SILENT_S = team_module.SILENT_S = SILENT_S


def run_job(job):
    pids = []
    for rank in range(job["num_ranks"]):
        pid = os.fork()
        if pid == 0:
            code = 1
            logging.basicConfig(level=logging.INFO, format=f"rank {rank} %(message)s", force=True)
            if not job.get("limits_as_shipped"):
                shorten_limits()
            try:
                one = Rank(rank, job)
                logging.getLogger("rampmeter").addHandler(Told(one))
                one.run()
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
    for line in sys.stdin:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_job(json.loads(line))
