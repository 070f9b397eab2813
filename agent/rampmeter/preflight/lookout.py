"""Looks whether a save can be made, in a thread of its own: storage that hangs must hold up nobody who asks.

Warns once of each thing that is no obstacle now but will cost something later. Never raises.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from rampmeter.core.messages import FailReason
from rampmeter.failing import meaning, reason_of
from rampmeter.preflight import grace, host, sharing
from rampmeter.preflight.shortage import Need, Shortage, shortage, shortage_of_memory

_log = logging.getLogger("rampmeter")

Tell = Callable[[Shortage | None], None]

Look = Callable[[int | None, Tell], bool]
"""As `Lookout.look`, with the bytes of a save as far as they are known."""


class Lookout:
    """One per attempt, of the job's root."""

    def __init__(self, root: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._root = root
        self._environment = environment
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    def look(self, need: Need, tell: Tell) -> bool:
        """Look, and `tell` what lacks (None = nothing) from another thread. False if an earlier look still hangs."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(
            target=lambda: tell(self._shortage(need)), name="rampmeter-lookout", daemon=True
        )
        self._thread.start()
        return True

    def _shortage(self, need: Need) -> Shortage | None:
        try:
            return shortage(host.room_at(self._root), need, self._root)
        except OSError as error:
            reason = reason_of(error)
            return Shortage(reason=reason, detail="; ".join(filter(None, (str(error), meaning(reason)))))

    def memory(self, need: Need) -> Shortage | None:
        """Whether the host has memory for the copy of the state. Does not block."""
        return shortage_of_memory(host.memory_bytes(), need)

    def look_around(self) -> None:
        """At the start: umask and group of a shared root."""
        try:
            found = self._root.stat()
        except OSError:
            return  # the claim of the attempt has just been written there: whoever saves will say more
        owner = sharing.Owner(
            mode=found.st_mode, group=found.st_gid, process_group=os.getegid(), umask=host.umask()
        )
        self._warn(sharing.cautions(owner))

    def save_takes(self, save_s: float) -> None:
        """What a save takes is known, or known better."""
        self._warn(grace.too_short(self._environment, save_s), once_as="grace")

    def _warn(self, cautions: list[str], once_as: str | None = None) -> None:
        for caution in cautions:
            key = once_as or caution
            if key not in self._warned:
                _log.warning("%s", caution)
        self._warned.update([once_as] if once_as and cautions else cautions)


HANGS = Shortage(
    reason=FailReason.ETIMEDOUT, detail="the storage does not answer: look at its server and the network"
)
"""What a look that does not come back says."""
