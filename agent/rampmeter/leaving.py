"""How a process ends: what that says of the job, and the end of an interpreter to which nobody has said goodbye.

The first thing that Python does at an exit is to join the workers of all thread pools, and a flush that waits for a
rate would keep it there for ever. An idle worker of a pool of our own ends at exactly that moment: a thread that waits
for its end can then bring the save to an end, too.
"""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rampmeter.core.messages import EndReason

EXIT_PREEMPTED = 75
"""EX_TEMPFAIL: supervisors start the job again."""

_LIMIT_S = 90.0
"""How long the exit waits for `on_exit`: longer than that waits for a save that moves, which may be its commit."""


def reason_of_end(error: BaseException | None) -> EndReason:
    """Why training leaves with this exception: a person's Ctrl-C is no failure, nor is a clean sys.exit()."""
    if error is None:
        return EndReason.FINISHED
    if isinstance(error, KeyboardInterrupt):
        return EndReason.CANCELLED
    is_clean = isinstance(error, SystemExit) and error.code in (None, 0)
    return EndReason.FINISHED if is_clean else EndReason.FAILED


class ExitWatch:
    """Calls `on_exit` from a thread of its own when the interpreter begins to exit, unless it was stopped before."""

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit
        self._stopped = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rampmeter-idle")
        self._idle: threading.Thread | None = None
        self._watcher = threading.Thread(target=self._watch, name="rampmeter-exit", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._idle = self._pool.submit(threading.current_thread).result()
        self._watcher.start()
        atexit.register(self._watcher.join, _LIMIT_S)

    def stop(self) -> None:
        """Goodbye is said, or is being said by `on_exit`."""
        if threading.current_thread() is self._watcher:
            return
        self._stopped = True
        self._pool.shutdown(wait=True)
        self._watcher.join()
        atexit.unregister(self._watcher.join)

    def _watch(self) -> None:
        assert self._idle is not None
        self._idle.join()
        if not self._stopped:
            self._on_exit()
