"""Where a save is written: in a thread of training, or in a process beside it. Pure.

A thread shares the interpreter with training. With thousands of small tensors that slows training many times over, and
with 16 large ones by a fifth while the flush lasts; beside a process it is a twentieth (`make bench`, slowdown).
A process is one more Python with torch in it, which little data does not earn; and only the thread has pinned memory,
which training waits less for where tensors come from an accelerator.
"""

from enum import StrEnum

from rampmeter.core.errors import ConfigError

MOST_IN_A_THREAD = 200
"""Tensors of a rank's snapshot."""

LARGEST_IN_A_THREAD_BYTES = 100_000_000
"""Of a rank's snapshot that comes from the memory of the host: a flush of a tenth of a second."""


class Mode(StrEnum):
    """`auto` decides by the number of tensors and by their bytes; what is restored is the same."""

    AUTO = "auto"
    THREAD = "thread"
    PROCESS = "process"

    @classmethod
    def of(cls, text: str) -> "Mode":
        """ConfigError for anything else."""
        if text not in list(cls):
            raise ConfigError(f"mode is {text!r}: use one of {', '.join(cls)}")
        return cls(text)


def chosen(wish: Mode, *, num_tensors: int, host_bytes: int, obstacle: str | None) -> Mode:
    """THREAD or PROCESS. An obstacle to a process, where there is one, outweighs the wish.

    `host_bytes` of tensors that all are in the memory of the host; 0 if one is elsewhere.
    """
    if obstacle is not None or wish is Mode.THREAD:
        return Mode.THREAD
    is_much = num_tensors > MOST_IN_A_THREAD or host_bytes > LARGEST_IN_A_THREAD_BYTES
    return Mode.PROCESS if wish is Mode.PROCESS or is_much else Mode.THREAD
