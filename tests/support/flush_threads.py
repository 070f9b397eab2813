"""The threads of a save, which may still be ending when its end is told."""

import threading

from support.waiting import wait_for

_NAMES = ("rampmeter-flush", "rampmeter-standstill")


def wait_for_their_end() -> None:
    """Those that end late are none that leak; those that never end fail here."""
    wait_for(
        lambda: not any(thread.name in _NAMES for thread in threading.enumerate()),
        what="the end of a save's threads",
    )
