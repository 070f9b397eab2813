"""The wire: every message between agent and coordinator, as frozen values. docs/protocol.md says it in prose.

The one place to import them from; they stand in `requests` (what an agent says), `answers` (what a coordinator says)
and `words` (the values that both choose from).

Rules that hold for all of them. A job has one request in flight; a newer `seq` supersedes an older held one and voids
its answer. `ack` is the `seq` of the last answer that the agent applied: a lowering counts only when it is confirmed.
`held_s` is how long the coordinator held the request before it decided: the agent's deadline for a lease is the first
send of that `seq` + `held_s` + `ttl_s` - MARGIN_S. Unknown fields are ignored, missing ones refused by name, absent
optional ones mean "unknown". Request enums refuse unknown values; answer enums, and the reasons of failed saves, map
them to `unknown`, which every reader treats as the careful choice.
"""

from rampmeter.core.answers import (
    Answer,
    AnyAnswer,
    Fence,
    Gone,
    Grant,
    Noted,
    Plan,
    Wait,
)
from rampmeter.core.requests import (
    Finish,
    Heartbeat,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from rampmeter.core.words import (
    EndReason,
    FailReason,
    GoneReason,
    Kind,
    LeaseState,
    Outcome,
    PlanReason,
    RateReason,
    RefusalReason,
    Survives,
    WaitReason,
)

__all__ = [
    "MARGIN_S",
    "PROTOCOL",
    "Answer",
    "AnyAnswer",
    "EndReason",
    "FailReason",
    "Fence",
    "Finish",
    "Gone",
    "GoneReason",
    "Grant",
    "Heartbeat",
    "Kind",
    "LeaseState",
    "Noted",
    "Outcome",
    "Plan",
    "PlanReason",
    "RateReason",
    "Ready",
    "RefusalReason",
    "Register",
    "Release",
    "Renew",
    "Request",
    "SlotRequest",
    "Survives",
    "Wait",
    "WaitReason",
]

PROTOCOL = 1
MARGIN_S = 1.0
"""What an agent stops before the coordinator's own expiry: covers clock drift and a paused scheduler."""
