"""A job of several ranks, each a real process: a training loop, a `Team`, and a flush that only counts its bytes.

`python -m support.rank_job` imports torch once, then forks the ranks of each job that it is told on stdin (JSON, one a
line). Each rank tells on stdout what happens to it, one JSON object a line. The parent only starts and reaps.
"""

import json
import logging
import mmap
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from rampmeter.core.clock import SystemClock
from rampmeter.ranks import liveness
from rampmeter.ranks import team as team_module
from rampmeter.ranks.bulletin import Bulletin, join_store, serve_store
from rampmeter.ranks.group import FlushGroup
from rampmeter.ranks.team import Hooks, Team
from rampmeter.ranks.words import Purpose
from rampmeter.throttle import Throttle

SILENT_S = 4.0
"""Shorter than in the product, so that tests are; still long for a machine that is busy with other tests."""

liveness.SILENT_S = team_module.SILENT_S = SILENT_S


class Rank:
    """One rank of a job; `job` is what the parent was told."""

    def __init__(self, rank, job):
        self.rank = rank
        self.job = job
        self.saves = []
        self.num_agreed = (
            0  # what tests count saves by: a proposal that is aborted takes a number of the product's
        )

    def tell(self, what, **more):
        line = json.dumps({"rank": self.rank, "what": what, **more}) + "\n"
        os.write(1, line.encode())

    def mine(self, name, default=None):
        """An option of the job that may differ by rank."""
        value = self.job.get(name, default)
        return value[self.rank] if isinstance(value, list) else value

    def run(self):
        self.group = None
        if self.job.get("gloo"):
            dist.init_process_group(
                "gloo",
                init_method=f"file://{self.job['file']}",
                rank=self.rank,
                world_size=self.job["num_ranks"],
            )
            self.group = FlushGroup(self.job["gloo"])
        team = self.team = Team(
            Bulletin(self.open_store(), self.rank),
            rank=self.rank,
            num_ranks=self.job["num_ranks"],
            hooks=Hooks(noticed=lambda rank: self.tell("noticed", by=rank)),
        )
        team.start()
        self.tell("started", pid=os.getpid())
        if self.rank == 0:
            threading.Thread(target=self.lead, daemon=True).start()
        if self.mine("signals"):
            signal.signal(signal.SIGTERM, lambda *_: team.notice())
        self.loop(team)
        for thread in self.saves:
            thread.join(60)
        self.tell("left", calls=self.calls, clean=team.leave())

    def open_store(self):
        if self.group is not None:
            store = serve_store("127.0.0.1") if self.rank == 0 else None
            if store is not None:
                Bulletin(store, 0).prepare(self.job["num_ranks"])
            port = self.group.tell_all(store.port if store is not None else None)
        elif self.rank == 0:
            store = serve_store("127.0.0.1")
            Bulletin(store, 0).prepare(self.job["num_ranks"])
            os.write(self.job["pipe"][1], b"%d\n" % store.port * self.job["num_ranks"])
            return store
        else:
            port = int(os.read(self.job["pipe"][0], 6).split()[0])
        return store if self.rank == 0 else join_store("127.0.0.1", port)

    def loop(self, team):
        """Train until told to stop, or for as many calls as this rank makes."""
        step = self.mine("first_step", 0)
        self.calls = 0
        while not team.stopped and self.calls < self.mine("num_calls", 10**9):
            time.sleep(self.mine("step_s", 0.01))
            self.keep_in_step()
            self.calls, step = self.calls + 1, step + 1
            before = time.monotonic()
            agreed = team.called(step)
            waited = time.monotonic() - before
            if waited > 1.0:
                self.tell("waited", seconds=waited, call=self.calls)
            if agreed is None:
                continue
            self.num_agreed += 1
            self.tell(
                "agreed",
                number=self.num_agreed,
                purpose=agreed.purpose,
                call=self.calls,
                step=step,
                waited_s=waited,
                new_group=agreed.new_group,
            )
            if agreed.new_group and self.group is not None:
                self.group.renew()
            if agreed.purpose is Purpose.SAVE:
                self.begin(team, agreed, step)

    def keep_in_step(self):
        """As a collective of training would: nobody is ahead of another by more than a call."""
        if self.job.get("in_step"):
            counts = memoryview(self.job["counts"]).cast("Q")
            counts[self.rank] = self.calls
            while min(counts[: self.job["num_ranks"]]) < self.calls and not self.team.stopped:
                time.sleep(0.001)

    def begin(self, team, agreed, step):
        throttle = Throttle()
        save = team.begin_save(agreed, step, throttle)
        thread = threading.Thread(target=self.flush, args=(save, throttle, self.num_agreed))
        self.saves.append(thread)
        thread.start()

    def flush(self, save, throttle, number):
        error = None
        needs_group = False
        try:
            save.begin()
            self.tell("open", number=number)
            num_bytes = self.mine("num_bytes", 1_000_000)
            save.ready(num_bytes)
            self.write(throttle, num_bytes, number)
            save.done()
            self.tell("met", number=number)
            if self.group is not None:
                if number == 1:
                    time.sleep(self.mine("sleeps_after_met", 0.0))
                needs_group = True
                dist.all_reduce(torch.ones(1), group=self.group.group)
                needs_group = False
        except Exception as caught:
            error = caught
        save.end(error, needs_group=needs_group)
        failure = save.failure
        self.tell(
            "ended",
            number=number,
            error=None if error is None else f"{type(error).__name__}: {error}",
            done_bytes=throttle.counters().done_bytes,
            failed=None if failure is None else failure.rank,
            why=None if failure is None else failure.why,
        )

    def write(self, throttle, num_bytes, number):
        left = num_bytes
        told = False
        while left:
            chunk = min(left, throttle.chunk_bytes())
            throttle.take(chunk)
            throttle.add_done(chunk)
            left -= chunk
            if not told:
                told = True
                self.tell("writing", number=number)
            if self.mine("fails_in_save") == number and left < num_bytes / 2:
                raise OSError(28, "No space left on device")

    def lead(self):
        """Rank 0: proposes saves one after another and lets them write; then proposes to stop."""
        clock = SystemClock()
        team, conductor = self.team, self.team.conductor
        rate = self.job.get("rate", 100_000_000)
        num_saves = self.job.get("num_saves", 1)
        num_allowed = 0
        time.sleep(self.job.get("before_s", 0.0))
        while num_allowed < num_saves and not team.stopped:
            if len(self.saves) < num_saves and team.propose(Purpose.SAVE):
                self.tell("proposed")
            if len(self.saves) > num_allowed and conductor.total_bytes is not None:
                num_allowed = len(self.saves)
                conductor.set_rate(rate, clock.now() + self.job.get("lease_s", 30.0))
                self.change_rates(conductor, rate)
            time.sleep(0.02)
        while any(thread.is_alive() for thread in self.saves):
            time.sleep(0.1)
        while not team.stopped and not self.job.get("goes_on"):
            team.propose(Purpose.STOP)
            time.sleep(0.02)

    def change_rates(self, conductor, rate):
        """Lower and raise it again and again, and tell how long it takes until all ranks follow."""
        clock = SystemClock()
        for turn in range(self.job.get("num_changes", 0)):
            begun_s = clock.now()
            version = conductor.set_rate(rate // (2 + turn % 2), begun_s + 30.0)
            while not conductor.have_applied(version) and clock.now() < begun_s + 5.0:
                time.sleep(0.005)
            self.tell("followed", seconds=clock.now() - begun_s, saves=len(self.saves))


def run_job(job):
    if not job.get("gloo"):
        job["pipe"] = os.pipe()
    job["counts"] = mmap.mmap(-1, mmap.PAGESIZE)
    pids = []
    for rank in range(job["num_ranks"]):
        pid = os.fork()
        if pid == 0:
            logging.basicConfig(level=logging.INFO, format=f"rank {rank} %(message)s")
            try:
                Rank(rank, job).run()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        pids.append(pid)
    for rank, pid in enumerate(pids):
        _, status = os.waitpid(pid, 0)
        os.write(
            1,
            (
                json.dumps({"rank": rank, "what": "exited", "code": os.waitstatus_to_exitcode(status)}) + "\n"
            ).encode(),
        )
    os.write(1, b'{"rank": -1, "what": "over"}\n')


if __name__ == "__main__":
    for line in sys.stdin:
        run_job(json.loads(line))
