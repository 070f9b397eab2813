"""Where a save is written: a table."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.daemon.mode import LARGEST_IN_A_THREAD_BYTES, MOST_IN_A_THREAD, Mode, chosen

FEW, MANY = MOST_IN_A_THREAD, MOST_IN_A_THREAD + 1
LITTLE, MUCH = LARGEST_IN_A_THREAD_BYTES, LARGEST_IN_A_THREAD_BYTES + 1


@pytest.mark.parametrize(
    ("wish", "num_tensors", "host_bytes", "obstacle", "expected"),
    [
        (Mode.AUTO, FEW, LITTLE, None, Mode.THREAD),
        (Mode.AUTO, MANY, LITTLE, None, Mode.PROCESS),
        (Mode.AUTO, FEW, MUCH, None, Mode.PROCESS),
        (Mode.AUTO, MANY, MUCH, "no", Mode.THREAD),
        (Mode.THREAD, MANY, MUCH, None, Mode.THREAD),
        (Mode.PROCESS, 1, 0, None, Mode.PROCESS),
        (Mode.PROCESS, MANY, MUCH, "no", Mode.THREAD),
    ],
)
def test_the_choice(
    wish: Mode, num_tensors: int, host_bytes: int, obstacle: str | None, expected: Mode
) -> None:
    """By wish, else by the number of tensors and their bytes; an obstacle outweighs all."""
    found = chosen(wish, num_tensors=num_tensors, host_bytes=host_bytes, obstacle=obstacle)
    assert found is expected


def test_another_word_is_refused_by_name() -> None:
    """The message says what there is."""
    assert Mode.of("process") is Mode.PROCESS
    with pytest.raises(ConfigError, match="mode is 'fork': use one of auto, thread, process"):
        Mode.of("fork")
