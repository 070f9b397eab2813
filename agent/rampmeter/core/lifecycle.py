"""The states of a save and the moves between them, as a table; what may be said, and by what right a save writes.

Names only: `pacer` decides when to move. What is not in the table does not happen.
"""

from enum import StrEnum


class PacerState(StrEnum):
    IDLE = "idle"
    DUE = "due"
    WAITING = "waiting"
    ARMED = "armed"
    READY = "ready"
    FLUSHING = "flushing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Governance(StrEnum):
    """By what right a save writes, or a restore reads."""

    LEASE = "lease"
    SAFE_RATE = "safe_rate"
    UNGOVERNED = "ungoverned"
    LOCAL = "local"


class Action(StrEnum):
    """What to say to the coordinator next."""

    NOTHING = "nothing"
    REGISTER = "register"
    HEARTBEAT = "heartbeat"
    ASK = "ask"
    READY = "ready"
    RENEW = "renew"
    RELEASE = "release"
    ASK_READ = "ask_read"
    RENEW_READ = "renew_read"
    RELEASE_READ = "release_read"
    ASK_REREAD = "ask_reread"
    RENEW_REREAD = "renew_reread"
    RELEASE_REREAD = "release_reread"


OF_A_RESTORE = frozenset({Action.ASK_READ, Action.RENEW_READ, Action.RELEASE_READ})

OF_A_REREAD = frozenset({Action.ASK_REREAD, Action.RENEW_REREAD, Action.RELEASE_REREAD})
"""Of what is read back beside training. All others are of a save, or of nothing of these."""

_S = PacerState
TRANSITIONS: dict[PacerState, frozenset[PacerState]] = {
    _S.IDLE: frozenset({_S.DUE}),
    _S.DUE: frozenset({_S.WAITING, _S.ARMED, _S.ABORTED}),
    _S.WAITING: frozenset({_S.ARMED, _S.READY, _S.FLUSHING, _S.COMMITTED, _S.ABORTED}),
    _S.ARMED: frozenset({_S.WAITING, _S.READY, _S.ABORTED}),
    _S.READY: frozenset({_S.WAITING, _S.FLUSHING, _S.COMMITTED, _S.ABORTED}),
    _S.FLUSHING: frozenset({_S.WAITING, _S.COMMITTED, _S.ABORTED}),
    _S.COMMITTED: frozenset({_S.IDLE}),
    _S.ABORTED: frozenset({_S.IDLE}),
}
WANTED = frozenset({_S.DUE, _S.WAITING})
"""There should be a save, and it has no right to go on: not yet, or not any more."""

IN_PROGRESS = frozenset({_S.ARMED, _S.READY, _S.FLUSHING})
ENDED = frozenset({_S.COMMITTED, _S.ABORTED})
