"""Says of each odd entry under a root once what is odd about it, so that a log is not filled round by round.

What is odd about one entry never stops what is done with the others: callers pass it over. This decides nothing.
"""

import logging
import threading

_log = logging.getLogger("rampmeter")


class Oddities:
    """What one process has told of one root. Thread-safe."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def tell(self, name: object, why: str) -> None:
        """Warn that `name` is left alone, unless this was said before."""
        said = (str(name), why)
        with self._lock:
            is_new = said not in self._told
            self._told.add(said)
        if is_new:
            _log.warning("%s is left alone: %s", *said)
