"""What a writer process tells comes across whole."""

import os

from rampmeter.daemon.records import new_memory
from rampmeter.daemon.tidings import Stage, Tidings, TidingsCell
from rampmeter.throttle import FlowCounters


def test_what_was_told_is_read() -> None:
    """Each field, by another mapping; of another save nothing."""
    memory = new_memory()
    told = Tidings(
        number=7,
        stage=Stage.WRITING,
        in_storage=True,
        beat=2,
        followed=3,
        planned_bytes=4,
        counters=FlowCounters(done_bytes=5, throttled_s=0.5, blocked_s=0.25, busy_s=0.125),
    )
    TidingsCell(memory).write(told)
    assert TidingsCell(memory).read(7) == told
    assert TidingsCell(memory).read(8) is None
    os.close(memory)
