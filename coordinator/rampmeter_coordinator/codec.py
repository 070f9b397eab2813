"""What comes in and what is logged, as JSON. Reading is strict: pydantic by the markers of `core.fields`.

A request that cannot be read is Refused (422), naming the field and never echoing the value. Writing is the business
of `model.encoding`; a reply's body is encoded once and handed in here as it goes over the wire, and a request goes into
the log as it came.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from rampmeter.core.messages import (
    Finish,
    Heartbeat,
    Ready,
    RefusalReason,
    Register,
    Release,
    Renew,
    SlotRequest,
)
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Command, Disconnected, Priced, Refusal, Reply, Tick
from rampmeter_coordinator.model.encoding import encode

T = TypeVar("T")

MAX_LOGGED_BYTES = 1024
"""A body that is longer than any that we would write is not logged as it came: the log must stay small."""

_COMMANDS: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (Register, Heartbeat, SlotRequest, Ready, Renew, Release, Finish, Tick, Disconnected, Priced)
}
_BEGINNINGS = {cls: b'{"%s":' % name.encode() for name, cls in _COMMANDS.items()}
_adapters: dict[Any, TypeAdapter[Any]] = {}


def adapter(cls: Any) -> TypeAdapter[Any]:
    """The pydantic adapter of a message or view class."""
    found = _adapters.get(cls)
    if found is None:
        found = _adapters[cls] = TypeAdapter(cls)
    return found


def decode(cls: type[T], body: bytes | bytearray) -> T:
    """A request from its body, or Refused with 422."""
    try:
        message: T = adapter(cls).validate_json(body)
    except ValidationError as error:
        raise Refused(_refusal(error)) from None
    return message


class _Said(msgspec.Struct, gc=False):
    """One reply in the log."""

    job_uid: str
    attempt: int
    seq: int
    body: msgspec.Raw


_JSON = msgspec.json.Encoder()


def encode_command(command: Command, body: bytes | bytearray = b"") -> bytes:
    """A command for the log: its class name and its fields, as in the `body` that it was decoded from if there is one.

    Whoever reads that again reads the same: `decode` is the one way for both.
    """
    fields = body if 0 < len(body) <= MAX_LOGGED_BYTES else encode(command)
    return _BEGINNINGS[type(command)] + fields + b"}"


def decode_command(raw: bytes) -> Command:
    """What `encode_command` wrote. Raises ValueError for what no release wrote."""
    beginning, _, fields = raw.partition(b":")
    name = beginning.decode(errors="replace").strip('{"')
    if name not in _COMMANDS:
        raise ValueError(f"{name} is no command of this release")
    command: Command = adapter(_COMMANDS[name]).validate_json(fields[:-1])
    return command


def encode_replies(replies: Iterable[tuple[Reply, bytes]]) -> bytes:
    """The replies that a command caused, each with its encoded body, for the log."""
    return _JSON.encode(
        [_Said(reply.job_uid, reply.attempt, reply.seq, msgspec.Raw(body)) for reply, body in replies]
    )


def _refusal(error: ValidationError) -> Refusal:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, found["loc"])) or None
    return Refusal(
        reason=RefusalReason.BAD_REQUEST,
        status=422,
        detail=f"{field}: {found['msg']}" if field else found["msg"],
        field=field,
    )
