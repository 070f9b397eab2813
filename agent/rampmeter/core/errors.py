"""The one error tree, named by what the caller should do. A refusal to start is a value (Wait), never an error.

RampmeterError
├── ConfigError              fix the call, the file or the variable that the message names (commands exit with 2)
├── CoordinatorUnavailable   nothing to do: the agent goes on at its safe rate and keeps asking
├── RequestRefused           the coordinator read the request and said no; `reason` says why
│   └── StaleAttempt         a newer attempt of this job exists: this process must stop saving
├── ProtocolError            the other side speaks another version, or not our protocol at all
├── LeaseLost                stop before the next chunk and ask for a new lease
├── CommitError              this save is lost, the ones before stand; the next interval brings another
│   └── RankFailed           because of another rank of this job, which the message names
├── SavesFailing             so many saves in a row have failed as was asked for: look at the storage, then start again
└── RestoreError             nothing was loaded and no tensor was touched
    ├── CorruptCheckpoint    this checkpoint is damaged; an older one may be whole
    │   └── DigestMismatch   the bytes themselves are: names and sizes are right
    ├── CannotVerify         this installation cannot compute its digests: install or upgrade what the message names
    ├── ForeignCheckpoints   the root holds checkpoints of another writer: adopt them, or load one yourself
    └── FormatTooNew         written by a newer major format: use a newer reader
"""

from collections.abc import Mapping
from typing import Any


def _unpickled(
    kind: "type[RampmeterError]", args: tuple[Any, ...], fields: Mapping[str, Any]
) -> "RampmeterError":
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class RampmeterError(Exception):
    """Base of everything that this project raises on purpose. All of them can be pickled: ranks tell each other."""

    def __reduce__(self) -> Any:
        return _unpickled, (type(self), self.args, self.__dict__)


class ConfigError(RampmeterError):
    """A setting is missing, ill-typed or out of range; the message names it."""


class CoordinatorUnavailable(RampmeterError):
    """No answer: not reachable, timed out, or answered 5xx; `retry_after_s` if it said when to come back."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestRefused(RampmeterError):
    """The coordinator answered 4xx. `reason` is a RefusalReason value, `field` the offending field if there is one."""

    def __init__(self, message: str, *, status: int, reason: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.field = field


class StaleAttempt(RequestRefused):
    """A newer attempt of this job is known. `stored_attempt` is its number."""

    def __init__(self, message: str, *, status: int, reason: str, stored_attempt: int) -> None:
        super().__init__(message, status=status, reason=reason)
        self.stored_attempt = stored_attempt


class ProtocolError(RampmeterError):
    """An answer that cannot be understood; the message names the field."""


class LeaseLost(RampmeterError):
    """The right to write has ended: expired, revoked, or superseded."""


class CommitError(RampmeterError):
    """A save did not become a checkpoint. `reason` is a short, bounded code (for example `enospc`)."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class RankFailed(CommitError):
    """This rank stopped its share of a save because another rank has failed. `reason` is that rank's."""


class SavesFailing(RampmeterError):
    """Raised into training where it was asked for. The checkpoints before are whole."""


class RestoreError(RampmeterError):
    """A restore that loaded nothing."""


class CorruptCheckpoint(RestoreError):
    """Sizes or digests do not match the manifest; the message names the file."""


class DigestMismatch(CorruptCheckpoint):
    """Bytes are not those that were committed, which only reading them shows."""


class CannotVerify(RestoreError, ConfigError):
    """Nothing is known of the bytes: their digests are of a kind that cannot be computed here."""


class ForeignCheckpoints(RestoreError):
    """Checkpoints that this agent did not write stand under the root."""


class FormatTooNew(RestoreError):
    """The manifest carries a higher major format than this reader knows."""
