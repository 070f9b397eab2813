"""Whether this process is a child that training has forked: it has our memory and none of our threads.

Such a child (a worker of multiprocessing, of a data loader) must not save under its parent's claim, and cannot: what it
would wait for runs in the parent alone. Python forks by default on Linux up to 3.13.
"""

import logging
import os

_log = logging.getLogger("rampmeter")


class Home:
    """The process that made this."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._told = False

    @property
    def is_elsewhere(self) -> bool:
        """This is another process: a child of it."""
        return os.getpid() != self._pid

    def refuses_step(self) -> bool:
        """Whether nothing is saved here. Says so once."""
        if not self.is_elsewhere:
            return False
        if not self._told:
            self._told = True
            _log.warning(
                "process %d was forked by a job that has a checkpointer: it saves nothing, its parent does; a job of "
                "its own needs a Checkpointer of its own",
                os.getpid(),
            )
        return True
