"""What people do today: torch's own async_save, each job on its own Young interval, nobody asking anybody.

Differs from the metered act in nothing but coordination: the same training, the same reused staging buffers, the same
storage. Young's interval is computed from the stalls that this job has measured, the warm-up's first.
"""

import shutil
import statistics
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save

from rampmeter.core.clock import Clock
from rampmeter.core.interval import young
from rampmeter_coordinator.demo.model import Training
from rampmeter_coordinator.demo.writer import EmulatedStorageWriter

_NUM_KEPT = 2


class YoungCheckpointer:
    """Saves whenever its own interval has passed. `on_save(step)`, `on_commit(step, write_s)` tell what happens."""

    def __init__(
        self,
        root: Path,
        training: Training,
        *,
        mtbf_s: float,
        writer_class: type[EmulatedStorageWriter],
        clock: Clock,
        on_save: Callable[[int], None],
        on_commit: Callable[[int, float], None],
    ) -> None:
        self._root = root
        self._training = training
        self._mtbf_s = mtbf_s
        self._writer_class = writer_class
        self._clock = clock
        self._on_save = on_save
        self._on_commit = on_commit
        self._stager = DefaultStager(StagingOptions(False, False, False, False))
        self._stalls_s: list[float] = []
        self._in_flight: Future[Any] | None = None
        self._snapshot_s = 0.0

    @property
    def interval_s(self) -> float:
        """Young's interval from the median of all measured stalls."""
        return young(statistics.median(self._stalls_s), self._mtbf_s)

    def warm_up(self) -> None:
        """Stage once: pays for the buffers and measures the first stall. Optimizer state must exist."""
        self._stager.stage(self._state())
        begin_s = self._clock.now()
        self._training.copy_out()
        self._stager.stage(self._state())
        self._stalls_s.append(self._clock.now() - begin_s)

    def start(self, now_s: float) -> None:
        """The first interval begins."""
        self._snapshot_s = now_s

    def step(self, step: int) -> float | None:
        """Save if it is time; how long that held training up, None if there was no save."""
        begin_s = self._clock.now()
        if begin_s < self._snapshot_s + self.interval_s:
            return None
        self.wait()
        self._snapshot_s = snapshot_s = self._clock.now()
        self._on_save(step)
        self._training.copy_out()
        directory = self._root / f"step-{step}"
        response = async_save(
            self._state(),
            storage_writer=self._writer_class(directory, overwrite=False),
            async_stager=self._stager,
            no_dist=True,
        )
        upload = response.upload_completion if isinstance(response, AsyncSaveResponse) else response
        upload.add_done_callback(lambda done: self._ended(done, step, snapshot_s))
        self._in_flight = upload
        stall_s = self._clock.now() - begin_s
        self._stalls_s.append(stall_s)
        return stall_s

    def wait(self) -> None:
        """For the save in flight."""
        if self._in_flight is not None:
            self._in_flight.result()

    def close(self) -> None:
        self.wait()
        self._stager.close()

    def _ended(self, done: "Future[Any]", step: int, snapshot_s: float) -> None:
        if done.exception() is None:
            self._on_commit(step, self._clock.now() - snapshot_s)
        names = sorted(self._root.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        for old in names[:-_NUM_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        training = self._training
        return {
            "model": get_model_state_dict(training.model),
            "optimizer": get_optimizer_state_dict(training.model, training.optimizer),
            "data": training.data.state_dict(),
            "rng": torch.get_rng_state(),
        }
