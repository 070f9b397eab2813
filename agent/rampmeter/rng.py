"""The random state of this process: Python, NumPy and torch, with its devices."""

import pickle
import random
from typing import Any

import numpy as np
import torch

from rampmeter.core.errors import RestoreError


def capture_rng() -> bytes:
    """The random state of Python, NumPy and torch on this rank, at this instant."""
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "cuda": [device.cpu().numpy().tobytes() for device in _cuda_states()],
    }
    return pickle.dumps(state)


def check_rng(content: bytes) -> None:
    """RestoreError if `apply_rng` could not put it back; tried with generators that nobody else draws from."""
    try:
        state = _read(content)
        random.Random().setstate(state["python"])
        np.random.RandomState().set_state(state["numpy"])
        torch.Generator().set_state(_byte_tensor(state["torch"]))
        for index, device_state in enumerate(state["cuda"][: len(_cuda_states())]):
            torch.Generator(device=f"cuda:{index}").set_state(_byte_tensor(device_state))
    except Exception as error:
        raise RestoreError(
            f"the random state in the checkpoint cannot be put back ({error}): "
            "restore with the versions of Python, NumPy and torch that saved it"
        ) from error


def apply_rng(content: bytes) -> None:
    """Put the random state back. Devices that the checkpoint does not know keep theirs."""
    state = _read(content)
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(_byte_tensor(state["torch"]))
    for index, device_state in enumerate(state["cuda"][: len(_cuda_states())]):
        torch.cuda.set_rng_state(_byte_tensor(device_state), index)


def _read(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = pickle.loads(content)  # noqa: S301 - verified against the manifest before it gets here
    return state


def _cuda_states() -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _byte_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
