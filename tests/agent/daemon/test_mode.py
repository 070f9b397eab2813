"""Where a save is written: a table."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.daemon.mode import MOST_IN_A_THREAD, Mode, chosen

MANY = MOST_IN_A_THREAD + 1


@pytest.mark.parametrize(
    ("wish", "num_tensors", "obstacle", "expected"),
    [
        (Mode.AUTO, MOST_IN_A_THREAD, None, Mode.THREAD),
        (Mode.AUTO, MANY, None, Mode.PROCESS),
        (Mode.AUTO, MANY, "no", Mode.THREAD),
        (Mode.THREAD, MANY, None, Mode.THREAD),
        (Mode.PROCESS, 1, None, Mode.PROCESS),
        (Mode.PROCESS, MANY, "no", Mode.THREAD),
    ],
)
def test_the_choice(wish: Mode, num_tensors: int, obstacle: str | None, expected: Mode) -> None:
    """By wish, else by the number of tensors; an obstacle outweighs both."""
    assert chosen(wish, num_tensors=num_tensors, obstacle=obstacle) is expected


def test_another_word_is_refused_by_name() -> None:
    """The message says what there is."""
    assert Mode.of("process") is Mode.PROCESS
    with pytest.raises(ConfigError, match="mode is 'fork': use one of auto, thread, process"):
        Mode.of("fork")
