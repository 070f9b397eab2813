"""Why a save failed: errors of real storage, of leases and of states, each as one word of a closed list."""

import errno

import pytest

from rampmeter.core.errors import CommitError, ConfigError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.core.notice import GiveUp
from rampmeter.failing import meaning, reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "full"), FailReason.ENOSPC),
        (OSError(errno.EDQUOT, "quota"), FailReason.EDQUOT),
        (OSError(errno.EIO, "disk"), FailReason.EIO),
        (OSError(errno.EFBIG, "large"), FailReason.EFBIG),
        (OSError(errno.ENFILE, "files"), FailReason.EMFILE),
        (OSError(errno.ENOTCONN, "mount"), FailReason.ENOTCONN),
        (ConnectionAbortedError(errno.ECONNABORTED, "mount"), FailReason.ENOTCONN),
        (PermissionError(errno.EACCES, "no"), FailReason.EACCES),
        (OSError(errno.EXDEV, "never here"), FailReason.UNKNOWN),
        (OSError("without a number"), FailReason.UNKNOWN),
        (MemoryError(), FailReason.ENOMEM),
        (LeaseLost("revoked"), FailReason.REVOKED),
        (LeaseLost("a word that nobody knows"), FailReason.LEASE_LOST),
        (CommitError("short", reason="size_mismatch"), FailReason.SIZE_MISMATCH),
        (CommitError("new", reason="of_a_later_release"), FailReason.UNKNOWN),
        (ConfigError("a lock"), FailReason.BAD_STATE),
        (RuntimeError("unexpected pos 64 vs 0"), FailReason.UNKNOWN),
    ],
)
def test_every_error_has_one_word(error: BaseException, reason: FailReason) -> None:
    """Whatever stops a save, what is told of it is out of the closed list."""
    assert reason_of(error) is reason


@pytest.mark.parametrize("reason", list(GiveUp))
def test_what_is_given_up_has_a_word_too(reason: GiveUp) -> None:
    """The reasons for which the pacer gives a save up are reasons of failed saves."""
    assert reason_of(LeaseLost(reason)) == reason


@pytest.mark.parametrize("reason", [r for r in FailReason if r.name in errno.errorcode.values()])
def test_errors_of_the_storage_say_what_to_do(reason: FailReason) -> None:
    """An errno means nothing to who trains a model."""
    assert len(meaning(reason)) > 20
