"""A valid example of every message with every field set, and the ways in which a field can be wrong."""

import dataclasses
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rampmeter.core.fields import Flag, Number, Text, Whole
from rampmeter.core.messages import (
    Finish,
    Gone,
    Grant,
    Heartbeat,
    Noted,
    Ready,
    Register,
    Release,
    Renew,
    SlotRequest,
    Wait,
)

UID = "0123456789abcdef" * 2
FENCE = {"epoch": 1, "counter": 1}
PLAN = {
    "number": 1,
    "interval_s": 600.0,
    "phase_offset_s": 12.5,
    "request_after_s": 590.0,
    "safe_bytes_per_s": 1000,
    "safe_after_s": 90.0,
    "safe_for_s": 14400.0,
    "heartbeat_s": 15.0,
    "reason": "own_period",
    "price_gpu_s_per_byte": 0.0,
    "bid_gpu_s_per_byte": 1e-9,
    "live_price_gpu_s_per_byte": 2e-9,
}
_ENVELOPE = {"job_uid": UID, "attempt": 1, "seq": 2, "ack": 1}
_PROGRESS = {"done_bytes": 5, "throttled_s": 1.0, "blocked_s": 1.0, "busy_s": 0.5}
_ANSWER = {"seq": 2, "held_s": 0.5, "confirm": False}

REQUESTS: dict[type, dict[str, Any]] = {
    Register: _ENVELOPE
    | {
        "name": "run7",
        "claim": UID,
        "num_gpus": 8,
        "tenant": "team-a",
        "num_bytes": 1_000_000_000,
        "stall_s": 1.0,
        "write_s": 30.0,
        "mtbf_s": 86400.0,
        "restart_s": 300.0,
        "interval_min_s": 60.0,
        "interval_max_s": 7200.0,
        "synchronous": False,
        "survives": "node",
        "seen_epoch": 0,
        "safe_bytes_per_s": 0,
    },
    Heartbeat: _ENVELOPE
    | {
        "step": 100,
        "step_s": 0.5,
        "committed_step": 90,
        "commit_age_s": 5.0,
        "num_skipped": 0,
        "num_failed": 2,
        "last_failure": "enospc",
        "num_ungoverned": 0,
        "restored_step": 80,
        "rolled_back": False,
        "load_s": 40.0,
        "warm_up_s": 60.0,
    },
    SlotRequest: _ENVELOPE
    | {
        "kind": "write",
        "num_bytes": 1_000_000_000,
        "age_s": 600.0,
        "ready_in_s": 0.0,
        "max_bytes_per_s": 10**9,
        "work_left_s": 1e6,
        "started": False,
        "urgent": False,
        "deadline_s": 60.0,
        "background": False,
    },
    Ready: _ENVELOPE | {"fence": FENCE, "lead_s": 1.0, "num_bytes": 1_000_000_000},
    Renew: _ENVELOPE
    | {
        "fence": FENCE,
        "held_bytes_per_s": 0,
        "num_bytes": 1_000_000_000,
        "kind": "write",
        "background": False,
    }
    | _PROGRESS,
    Release: _ENVELOPE
    | {
        "fence": FENCE,
        "outcome": "committed",
        "step": 100,
        "stall_s": 1.0,
        "lead_s": 1.0,
        "write_s": 30.0,
        "eps": 0.05,
        "num_failed": 2,
        "last_failure": "enospc",
    }
    | _PROGRESS,
    Finish: _ENVELOPE | {"reason": "finished"},
}
PATHS: dict[type, str] = {
    Register: "jobs/register",
    Heartbeat: "jobs/heartbeat",
    Finish: "jobs/finish",
    SlotRequest: "slots",
    Ready: "leases/ready",
    Renew: "leases/renew",
    Release: "leases/release",
}
ANSWERS: dict[type, dict[str, Any]] = {
    Noted: _ANSWER | {"answer": "noted", "plan": PLAN},
    Grant: _ANSWER
    | {
        "answer": "grant",
        "fence": FENCE,
        "state": "active",
        "bytes_per_s": 1000,
        "ttl_s": 30.0,
        "reason": "full",
        "start_within_s": 60.0,
        "max_streams": 4,
        "plan": PLAN,
    },
    Wait: _ANSWER
    | {
        "answer": "wait",
        "retry_after_s": 5.0,
        "reason": "queue",
        "eta_s": 9.0,
        "fits_bytes": 10**9,
        "plan": PLAN,
    },
    Gone: _ANSWER | {"answer": "gone", "reason": "expired", "plan": PLAN},
}

BAD_NUMBERS = {
    "NaN": "NaN",
    "quoted NaN": '"NaN"',
    "1e999": "1e999",
    "-1e999": "-1e999",
    "quoted inf": '"inf"',
    "true": "true",
    "quoted 3": '"3"',
    "negative": "-1",
    "1e30": "1e30",
    "400 digits": "9" * 400,
    "null": "null",
}
BAD_TEXTS = {"null": "null", "number": "3", "empty": '""', "line end": '"run7\\n"', "long": f'"{"a" * 200}"'}
BAD_FLAGS = {"null": "null", "one": "1", "quoted true": '"true"'}
BAD_WORDS = {"null": "null", "number": "3"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message: its dotted path, what it holds, and whether it may be absent."""

    path: str
    hint: Any
    required: bool

    @property
    def bad_values(self) -> dict[str, str]:
        """Raw JSON texts that must be refused."""
        marker = self.hint.__metadata__[0] if get_origin(self.hint) is Annotated else self.hint
        if isinstance(marker, Whole | Number):
            return BAD_NUMBERS
        if isinstance(marker, Text):
            return BAD_TEXTS
        return BAD_FLAGS if isinstance(marker, Flag) else BAD_WORDS

    @property
    def is_numeric(self) -> bool:
        """Whether it holds a number."""
        return self.bad_values is BAD_NUMBERS


def fields_of(cls: type, prefix: str = "") -> Iterator[Field]:
    """Every leaf field of a message class, also those inside its fence and plan."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint, path = hints[field.name], f"{prefix}{field.name}"
        inner = next(
            (
                arg
                for arg in (hint, *get_args(hint))
                if isinstance(arg, type) and dataclasses.is_dataclass(arg)
            ),
            None,
        )
        if inner is not None:
            yield from fields_of(inner, f"{path}.")
        elif get_origin(hint) is Annotated or get_origin(hint) is Literal or issubclass(hint, StrEnum):
            yield Field(path=path, hint=hint, required=field.default is dataclasses.MISSING)


def body_with(example: dict[str, Any], path: str, raw: str) -> bytes:
    """The example as JSON with the raw text `raw` as the value of the field at `path`."""
    message = json.loads(json.dumps(example))
    holder, name = _holder(message, path)
    holder[name] = "@here@"
    return json.dumps(message).replace('"@here@"', raw).encode()


def body_without(example: dict[str, Any], path: str) -> bytes:
    """The example as JSON without the field at `path`."""
    message = json.loads(json.dumps(example))
    holder, name = _holder(message, path)
    del holder[name]
    return json.dumps(message).encode()


def _holder(message: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, name = path.split(".")
    for parent in parents:
        message = message[parent]
    return message, name
