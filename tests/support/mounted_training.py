"""A real training process whose checkpoints go to a shared mount: a large state of which each step touches little.

Runs in a child of the demo's forkserver, which has torch imported. Ends when its control pipe is closed.
"""

import logging
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rampmeter_coordinator.demo.troupe import Actor, Troupe

STEP_S = 0.1
_ROW = 64
_FLOAT_BYTES = 4


def start(troupe: Troupe, root: Path, log: Path, num_bytes: int, **options: Any) -> Actor:
    """A process that trains under `root` with a state of `num_bytes` until it is told to stop."""
    return troupe.start(_train, log, root, num_bytes, options)


def restored_step(root: Path, num_bytes: int) -> int | None:
    """The step of the newest checkpoint, every byte of it read back and verified."""
    from rampmeter import Checkpointer  # noqa: PLC0415

    with Checkpointer(root) as ckpt:
        return ckpt.restore(_state(num_bytes))


def _state(num_bytes: int) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - where nobody trains it is not needed

    model = torch.nn.Embedding(num_bytes // (_ROW * _FLOAT_BYTES), _ROW, sparse=True)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


def _train(control: Connection, log: Path, root: Path, num_bytes: int, options: dict[str, Any]) -> None:
    """The loop of the README; a step takes as long as an emulated device takes for it."""
    import torch  # noqa: PLC0415

    from rampmeter import Checkpointer  # noqa: PLC0415

    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    state = _state(num_bytes)
    model, optimizer = state["model"], state["optimizer"]
    with Checkpointer(root, keep=1, **options) as ckpt:
        step = ckpt.restore(state) or 0
        while not (control.poll(STEP_S) or ckpt.should_stop):
            optimizer.zero_grad()
            rows = torch.randint(model.num_embeddings, (8,))
            model(rows).pow(2).mean().backward()
            optimizer.step()
            step += 1
            ckpt.step(step, state)
