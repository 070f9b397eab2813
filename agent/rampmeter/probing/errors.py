"""How a probe ends without a result, and what people are told about an error of the file system."""

import errno
from collections.abc import Mapping

from rampmeter.core.errors import RampmeterError

_MEANINGS: Mapping[int, str] = {
    errno.ENOSPC: "no space is left on it: somebody else filled it meanwhile, or a limit on the directory "
    "was reached",
    errno.EDQUOT: "the quota is used up: give a smaller --size, or have the quota raised",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EROFS: "it is mounted read-only",
    errno.EIO: "the storage reported an input/output error",
    errno.ESTALE: "the mount is stale: it has to be mounted anew",
}


class ProbeFailed(RampmeterError):
    """The storage did not let the probe finish; the message says why."""


class Stopped(RampmeterError):
    """A signal ended the probe."""


def meaning(error: OSError) -> str:
    """What an error of the file system means for whoever probes."""
    return _MEANINGS.get(error.errno or 0, error.strerror or str(error))
