"""Where a save is written: in a thread of training, or in a process beside it. Pure.

A thread shares the interpreter with training. With few tensors that is nothing, with thousands of small ones it slows
training (measured: 6,000 tensors 13 times in a thread, 1.09 times in a process; 16 large ones 1.08 and 1.01).
"""

from enum import StrEnum

from rampmeter.core.errors import ConfigError

MOST_IN_A_THREAD = 200
"""Tensors of a rank's snapshot."""


class Mode(StrEnum):
    """`auto` decides by the number of tensors; what is restored is the same."""

    AUTO = "auto"
    THREAD = "thread"
    PROCESS = "process"

    @classmethod
    def of(cls, text: str) -> "Mode":
        """ConfigError for anything else."""
        if text not in list(cls):
            raise ConfigError(f"mode is {text!r}: use one of {', '.join(cls)}")
        return cls(text)


def chosen(wish: Mode, *, num_tensors: int, obstacle: str | None) -> Mode:
    """THREAD or PROCESS. An obstacle to a process, where there is one, outweighs the wish."""
    if obstacle is not None or wish is Mode.THREAD:
        return Mode.THREAD
    if wish is Mode.PROCESS or num_tensors > MOST_IN_A_THREAD:
        return Mode.PROCESS
    return Mode.THREAD
