"""Trains and saves until it is killed, and the one who looks what is left: every value of step n is n.

A mixture of two steps is seen at once. The victim tells what it has begun and committed; the lines are in the pipe
before the kill, so the last one that was told is known for sure. Four kinds: the whole `Checkpointer` as users have
it (local), the same in a job of two ranks, also with a writer process for each, and a bare `Saver` with everything else
that is written under a root, one after the other in one thread. `arm` is called before the first operation,
of several ranks by rank 0.
"""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import rampmeter
from rampmeter import marks, removal, retention
from rampmeter.core.clock import SystemClock
from rampmeter.events import Event, SaveEnded, SaveStarted
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

NUM_TENSORS = 3
NUM_VALUES = 100_000
SIZE_BYTES = NUM_TENSORS * NUM_VALUES * 4
KEEP = 2
NUM_RANKS = 2


def make_state(value: float, num_values: int = NUM_VALUES) -> dict[str, Any]:
    """Tensors full of `value`."""
    return {f"t{index}": torch.full((num_values,), float(value)) for index in range(NUM_TENSORS)}


def is_exact(state: dict[str, Any], step: int) -> bool:
    """Whether every value of every tensor is of this step."""
    return all(bool((tensor == float(step)).all()) for tensor in state.values())


def restored_step(root: Root, num_values: int = NUM_VALUES) -> int | None:
    """The step that comes back, all of it; None where there is none, and then nothing was touched."""
    state = make_state(-1.0, num_values)
    found = restore(root, {"parts": state})
    step = -1 if found is None else found.step
    assert is_exact(state, step), f"step {step} is a mixture"
    return None if found is None else step


@dataclass(frozen=True, slots=True)
class Told:
    """What a victim has said before its end."""

    begun: int
    committed: int

    @classmethod
    def of(cls, lines: list[str]) -> "Told":
        """The highest step of each kind, 0 where there is none."""
        words = [line.split() for line in lines]

        def highest(word: str) -> int:
            return max((int(found[1]) for found in words if found[0] == word), default=0)

        return cls(highest("begun"), highest("committed"))


def say(word: str, step: int) -> None:
    """One whole line, from whatever thread."""
    os.write(1, f"{word} {step}\n".encode())


def unarmed() -> None:
    """Nothing happens to the victim by itself."""


def whole(
    path: str,
    num_saves: int,
    *,
    keep: int = KEEP,
    num_values: int = NUM_VALUES,
    arm: Callable[[], None] = unarmed,
    **more: Any,
) -> None:
    """A training loop with the real Checkpointer, until so many saves are committed; 0 = for ever."""
    arm()
    events: list[Event] = []
    state = make_state(0.0, num_values)
    options = {"keep": keep, "keep_days": 0, "interval_max_s": 0.001, "seed": 1} | more
    writer = None
    with rampmeter.Checkpointer(path, on_event=lambda event: _tell(event, events), **options) as ckpt:
        step = ckpt.restore({"parts": state}) or 0
        assert is_exact(state, step)
        say("restored", step)
        while not num_saves or len(events) < num_saves:
            step += 1
            for tensor in state.values():
                tensor.fill_(step)
            ckpt.step(step, {"parts": state})
            writer = _tell_writer(ckpt, writer)


def _tell_writer(ckpt: rampmeter.Checkpointer, before: int | None) -> int | None:
    """The pid of the process that writes, told whenever it is another one."""
    found = ckpt._saver._route._guardian.pid
    if found in (None, before):
        return before
    say("writer", found)
    return found


def two_ranks_process(path: str, num_saves: int, *, arm: Callable[[], None] = unarmed) -> None:
    """As `two_ranks`, with writer processes, whose pids are told, too."""
    two_ranks(path, num_saves, mode="process", arm=arm)


def two_ranks(
    path: str,
    num_saves: int,
    *,
    keep: int = KEEP,
    mode: str = "thread",
    arm: Callable[[], None] = unarmed,
) -> None:
    """As `whole`, in a job of two ranks. This process only starts and reaps them; it tells their pids."""
    pids = []
    for rank in range(NUM_RANKS):
        pid = os.fork()
        if pid == 0:
            if rank == 0:
                arm()
            os._exit(_end_of(lambda rank=rank: _train_rank(rank, path, num_saves, keep, mode)))
        pids.append(pid)
        say("pid", pid)
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids))


def _end_of(run: Callable[[], None]) -> int:
    try:
        run()
    except RuntimeError:  # what torch says where another rank has gone
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _train_rank(rank: int, path: str, num_saves: int, keep: int, mode: str) -> None:
    """Each rank has a tensor of its own, and all share the last. They train in step, and leave in the same one."""
    meeting = f"file://{path}.ranks-of-{os.getppid()}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=NUM_RANKS)
    events: list[Event] = []
    shared = f"t{NUM_TENSORS - 1}"
    state = {name: tensor for name, tensor in make_state(0.0).items() if name in (f"t{rank}", shared)}
    options: dict[str, Any] = {"keep": keep, "keep_days": 0, "interval_max_s": 0.001, "seed": 1, "mode": mode}
    is_over, writer, longest_s, clock = torch.zeros(1), None, 0.0, SystemClock()
    with rampmeter.Checkpointer(path, on_event=lambda event: _tell(event, events), **options) as ckpt:
        step = ckpt.restore({"parts": state}) or 0
        assert all(bool((tensor == step).all()) for tensor in state.values())
        while not is_over:
            step += 1
            for tensor in state.values():
                tensor.fill_(step)
            ckpt.step(step, {"parts": state})
            writer = _tell_writer(ckpt, writer)
            if rank == 0:  # alone, as whoever prints a line about it
                asked_s = clock.now()
                _ = (ckpt.poll(), ckpt.should_stop, ckpt.last_save, ckpt.exit_code, ckpt.num_ungoverned)
                longest_s = max(longest_s, clock.now() - asked_s)
            is_over.fill_(float(rank == 0 and 0 < num_saves <= len(events)))
            dist.all_reduce(is_over)
    if rank == 0:
        say("answered_within_ms", round(1000 * longest_s))


def _tell(event: Event, committed: list[Event]) -> None:
    if isinstance(event, SaveStarted):
        say("begun", event.step)
    elif isinstance(event, SaveEnded):
        say("committed" if event.reason is None else "failed", event.step)
        if event.reason is None:
            committed.append(event)


def bare(path: str, num_saves: int, *, keep: int = KEEP, arm: Callable[[], None] = unarmed) -> None:
    """The same without clocks and threads of ours: claim, sweep, plan, restore, saves, pin, prune."""
    arm()
    root, clock = Root(path), SystemClock()
    root.ensure_job_uid()
    claim = root.claim_attempt()
    retention.write_keep(root, retention.Keep(keep=keep, keep_days=0))
    retention.sweep(root, claim.number, lambda: None)
    for name in root.committed_steps():  # pinned by one that was killed
        marks.take_mark(root.directory(name), marks.Mark.PINNED)
    root.write_plan_bytes(b"{}")
    state = make_state(0.0)
    found = restore(root, {"parts": state})
    step = 0 if found is None else found.step
    assert is_exact(state, step)
    saver = Saver(root, claim, job="victim")
    for _ in range(num_saves):
        step += 1
        save_one(saver, step)
        pinned = root.directory(root.committed_steps()[0])
        assert removal.pin(pinned, clock)
        retention.prune(root, retention.Keep(keep=keep, keep_days=0), lambda: None)
        marks.take_mark(pinned, marks.Mark.PINNED)
    root.remove_plan()
    saver.close(0.0)


def save_one(saver: Saver, step: int, bytes_per_s: int | None = None) -> bool:
    """Save a step and say so; whether it was committed."""
    throttle = Throttle()
    throttle.set_rate(bytes_per_s)
    say("begun", step)
    report = saver.begin(step, {"parts": make_state(step)}, throttle).result()
    say("committed" if report.committed else "failed", step)
    return report.committed


def disk_bytes(root: Path) -> int:
    """All that stands under a root."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
