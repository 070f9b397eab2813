"""What comes in and what is logged, as JSON. Reading is strict: pydantic by the markers of `core.fields`.

A request that cannot be read is Refused (422), naming the field and never echoing the value. Writing is the business
of `model.encoding`; a reply's body is encoded once and handed in here as it goes over the wire.
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
from rampmeter_coordinator.model.commands import Command, Disconnected, Refusal, Reply, Tick
from rampmeter_coordinator.model.encoding import encode

T = TypeVar("T")


_COMMANDS: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (Register, Heartbeat, SlotRequest, Ready, Renew, Release, Finish, Tick, Disconnected)
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


def encode_command(command: Command) -> bytes:
    """A command for the log: its class name and its fields."""
    return _BEGINNINGS[type(command)] + encode(command) + b"}"


def decode_command(raw: bytes) -> Command:
    """What `encode_command` wrote. Raises ValueError for what no release wrote."""
    ((name, fields),) = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()
    if name not in _COMMANDS:
        raise ValueError(f"{name} is no command of this release")
    command: Command = adapter(_COMMANDS[name]).validate_json(bytes(fields))
    return command


def encode_replies(replies: Iterable[tuple[Reply, bytes]]) -> bytes:
    """The replies that a command caused, each with its encoded body, for the log."""
    said = [
        f'{{"job_uid":"{reply.job_uid}","attempt":{reply.attempt},"seq":{reply.seq},"body":'.encode() + body
        for reply, body in replies
    ]
    return b"[" + b"},".join(said) + b"}]" if said else b"[]"


def _refusal(error: ValidationError) -> Refusal:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, found["loc"])) or None
    return Refusal(
        reason=RefusalReason.BAD_REQUEST,
        status=422,
        detail=f"{field}: {found['msg']}" if field else found["msg"],
        field=field,
    )
