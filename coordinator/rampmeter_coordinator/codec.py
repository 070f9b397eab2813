"""Messages as JSON through pydantic: one adapter per class, made once. The strictness is that of `core.fields`.

Reading raises Refused (422) that names the field and never echoes the value; writing leaves absent fields out.
"""

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from rampmeter.core.messages import RefusalReason
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Command, Refusal, Reply

T = TypeVar("T")


_adapters: dict[Any, TypeAdapter[Any]] = {}


def adapter(cls: Any) -> TypeAdapter[Any]:
    """The pydantic adapter of a message or view class."""
    found = _adapters.get(cls)
    if found is None:
        found = _adapters[cls] = TypeAdapter(cls)
    return found


def encode(value: object) -> bytes:
    """A dataclass as JSON."""
    return adapter(type(value)).dump_json(value, exclude_none=True)


def decode(cls: type[T], body: bytes) -> T:
    """A request from its body, or Refused with 422."""
    try:
        message: T = adapter(cls).validate_json(body)
    except ValidationError as error:
        raise Refused(_refusal(error)) from None
    return message


def encode_command(command: Command) -> bytes:
    """A command for the log: its class name and its fields."""
    return b'{"%s":%s}' % (type(command).__name__.encode(), encode(command))


def encode_replies(replies: tuple[Reply, ...]) -> bytes:
    """The replies that a command caused, for the log."""
    return b"[%s]" % b",".join(map(encode, replies))


def _refusal(error: ValidationError) -> Refusal:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, found["loc"])) or None
    return Refusal(
        reason=RefusalReason.BAD_REQUEST,
        status=422,
        detail=f"{field}: {found['msg']}" if field else found["msg"],
        field=field,
    )
