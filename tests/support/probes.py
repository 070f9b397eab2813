"""File layers for probes: slow ones, ones that fail, ones that remember what was done."""

import errno
import os
import threading

from rampmeter.core.clock import ManualClock
from rampmeter.probing.files import Files, Space
from rampmeter.probing.measuring import Limits, Meter

MIB = 2**20


class FailingFiles(Files):
    """The real file system, of which one operation fails from its n-th call on."""

    def __init__(self, operation, number, *, after=0):
        self._left = after
        self._error = OSError(number, os.strerror(number))
        setattr(self, operation, self._failing(getattr(self, operation)))

    def _failing(self, real):
        def call(*arguments):
            if self._left <= 0:
                raise self._error
            self._left -= 1
            return real(*arguments)

        return call


class SteadyFiles(Files):
    """A storage of a fixed rate on a manual clock: one writer at a time, `write_s` a chunk, `sync_s` a sync."""

    def __init__(self, clock=None, *, write_s=0.0, sync_s=0.0, free_bytes=None, free_files=None):
        self.clock = clock or ManualClock()
        self.done = []
        self.data = []
        self._times = {"write": write_s, "sync": sync_s}
        self.free_bytes = free_bytes
        self.free_files = free_files

    def space(self, directory):
        return Space(free_bytes=self.free_bytes, free_files=self.free_files)

    def write(self, descriptor, data):
        self._note("write")
        self.data.append(bytes(data))
        return super().write(descriptor, data)

    def push_out(self, descriptor, end_bytes):
        self._note("push_out")
        super().push_out(descriptor, end_bytes)

    def sync(self, descriptor):
        self._note("sync")

    def close(self, descriptor):
        self._note("close")
        super().close(descriptor)

    def read(self, descriptor, buffer):
        self._note("read")
        return super().read(descriptor, buffer)

    def _note(self, what):
        self.done.append(what)
        self.clock.advance(self._times.get(what, 0.0))


class HangingFiles(SteadyFiles):
    """Every write waits until `release` is set."""

    def __init__(self):
        super().__init__()
        self.release = threading.Event()

    def write(self, descriptor, data):
        self.release.wait(30)
        return super().write(descriptor, data)


def meter(directory, files, *, max_bytes=4 * MIB, duration_s=10.0, watch=None, stop=None):
    """A meter in an empty directory."""
    return Meter(
        directory,
        files=files,
        clock=files.clock,
        stop=stop or threading.Event(),
        watch=watch or (lambda _what, _share: None),
        limits=Limits(max_bytes=max_bytes, duration_s=duration_s),
    )


NO_SPACE, QUOTA, BROKEN, READ_ONLY, FORBIDDEN = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
)
