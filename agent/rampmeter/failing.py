"""Why a save failed, as one word of a closed list, and what people can do about it. Decides nothing else."""

import errno

from rampmeter.core.errors import CommitError, ConfigError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.core.notice import GiveUp

ABORTED = frozenset({FailReason.LEASE_LOST, FailReason.SUPERSEDED, FailReason.CLOSING, *GiveUp})
"""Saves that were given up on purpose: nothing has failed."""

_OF_ERRNO = {
    number: FailReason[name] for number, name in errno.errorcode.items() if name in FailReason.__members__
} | {
    errno.ENFILE: FailReason.EMFILE,  # of the whole machine
    errno.ECONNABORTED: FailReason.ENOTCONN,  # a FUSE daemon that was killed: first this, later the other
    errno.ESHUTDOWN: FailReason.ENOTCONN,
    errno.ENODEV: FailReason.EIO,  # the device is gone
    errno.ENXIO: FailReason.EIO,
}

_MEANINGS = {
    FailReason.ENOSPC: "the storage is full: free space or inodes, or keep fewer checkpoints",
    FailReason.EDQUOT: "the quota is used up: free space, or have it raised",
    FailReason.EFBIG: "a file is larger than is allowed here: look at `ulimit -f` and the limits of the file system",
    FailReason.EIO: "the storage reports an error: look at its health and at the kernel's log (dmesg)",
    FailReason.EROFS: "the file system is mounted read-only, often after an error: look at the kernel's log (dmesg)",
    FailReason.EACCES: "this user may not write there: look at owner, group and mode of the root",
    FailReason.EPERM: "this user may not write there: look at owner, group and mode of the root",
    FailReason.ENOENT: "the root was removed or unmounted under the running job: bring it back, or start the job again",
    FailReason.ESTALE: "the server has replaced or removed the directory: mount it again",
    FailReason.ENOTCONN: "the mount has lost its server: mount it again",
    FailReason.ETIMEDOUT: "the storage does not answer: look at its server and the network",
    FailReason.ENOMEM: "the host has too little memory for a second copy of the state",
    FailReason.WRITER_LOST: "was it ended for lack of memory? look at the kernel's log (dmesg)",
    FailReason.DAMAGED: "a committed checkpoint was read back and is not as it was written: look at the storage",
    FailReason.EMFILE: "too many files are open: raise `ulimit -n`, or close some",
}


_LONGEST_LINE = 300


def reason_of(error: BaseException) -> FailReason:
    """The word for what stopped a save."""
    if isinstance(error, CommitError):
        return FailReason(error.reason)
    if isinstance(error, LeaseLost):
        found = FailReason(str(error))
        return FailReason.LEASE_LOST if found is FailReason.UNKNOWN else found
    if isinstance(error, ConfigError):
        return FailReason.BAD_STATE
    if isinstance(error, MemoryError):
        return FailReason.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        return _OF_ERRNO.get(error.errno, FailReason.UNKNOWN)
    return FailReason.UNKNOWN


def in_one_line(error: BaseException) -> str:
    """What an error says, where torch and others say a hundred lines: the first one, and not without end."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


def meaning(reason: FailReason) -> str:
    """What to do about it; empty where the error itself says all there is to say."""
    return _MEANINGS.get(reason, "")
