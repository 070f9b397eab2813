"""Pushes what was written out of the page cache, so that the device sees the lease and not a burst at the end.

Without this, the kernel keeps dirty pages until the final sync and then writes them at full speed, whatever the lease
says. The methods are tried in the order of what they cost; on file systems without a page cache they do nothing.
"""

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable

_SYNC_FILE_RANGE_WRITE_AND_WAIT = 1 | 2 | 4


def push_out(descriptor: int, end_bytes: int) -> None:
    """Start (or finish) writing the first `end_bytes` of the file and drop what is already clean.

    The range starts at 0, because pages that were still being written at the last call can only be dropped now.
    OSError if the device refused the bytes.
    """
    for method in _methods():
        if method(descriptor, end_bytes):
            return
    os.fdatasync(descriptor)


def forget(descriptor: int, offset_bytes: int, num_bytes: int) -> None:
    """Drop a range that is durable from the page cache, so that the next read asks the device. A hint, no promise."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset_bytes, num_bytes, os.POSIX_FADV_DONTNEED)


@functools.cache
def _methods() -> tuple[Callable[[int, int], bool], ...]:
    return (_advise, _sync_range)


def _advise(descriptor: int, end_bytes: int) -> bool:
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        os.posix_fadvise(descriptor, 0, end_bytes, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    return True


def _sync_range(descriptor: int, end_bytes: int) -> bool:
    function = _sync_file_range()
    if function is None:
        return False
    status = function(
        descriptor,
        ctypes.c_int64(0),
        ctypes.c_int64(end_bytes),
        ctypes.c_uint(_SYNC_FILE_RANGE_WRITE_AND_WAIT),
    )
    return status == 0


@functools.cache
def _sync_file_range() -> Callable[..., int] | None:
    try:
        library = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    return getattr(library, "sync_file_range", None)
