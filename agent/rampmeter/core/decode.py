"""JSON to messages and back with the standard library, by the markers of `core.fields`: the agent's half of strictness.

Gives the same verdicts as the coordinator's pydantic side (a test compares them field by field). Never guesses: a
missing required field, a null, a wrong type or a number out of bounds is a ProtocolError that names the field.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rampmeter.core.errors import ProtocolError
from rampmeter.core.fields import BadValue
from rampmeter.core.messages import AnyAnswer, Gone, Grant, Noted, Wait

_ANSWERS: Mapping[str, type] = {"noted": Noted, "grant": Grant, "wait": Wait, "gone": Gone}

T = TypeVar("T")
Reader = Callable[[object, str], object]


def encode(message: object) -> bytes:
    """A message as JSON; absent optional fields are left out."""
    return json.dumps(_plain(message), allow_nan=False, separators=(",", ":")).encode()


def decode_answer(body: bytes) -> AnyAnswer:
    """An answer of the coordinator, told apart by `answer`. Raises ProtocolError naming the field."""
    fields = parse_object(body)
    kind = fields.get("answer")
    cls = _ANSWERS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ProtocolError(f"answer: must be one of {', '.join(_ANSWERS)}")
    answer: AnyAnswer = build(cls, fields)
    return answer


def decode(cls: type[T], body: bytes) -> T:
    """A message of a known class. Raises ProtocolError naming the field."""
    return build(cls, parse_object(body))


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in `body`. NaN is read here so that the field that holds it can be named."""
    try:
        value = json.loads(body, parse_constant=float)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError("the body must be a JSON object")
    return value


def build(cls: type[T], value: object, path: str = "") -> T:
    """`value`, a parsed JSON object, as an instance of the message class `cls`."""
    if not isinstance(value, dict):
        raise ProtocolError(f"{path or cls.__name__}: must be an object")
    found = {}
    for name, (reader, required) in _readers(cls).items():  # type: ignore[arg-type]  # a class is hashable
        where = f"{path}.{name}" if path else name
        if name in value:
            found[name] = reader(value[name], where)
        elif required:
            raise ProtocolError(f"{where}: is missing")
    return cls(**found)


@cache
def _readers(cls: type) -> dict[str, tuple[Reader, bool]]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: (_reader(hints[field.name]), field.default is dataclasses.MISSING)
        for field in dataclasses.fields(cls)
    }


def _reader(hint: Any) -> Reader:
    origin = get_origin(hint)
    if origin is Annotated:
        return _marker_reader(hint.__metadata__[0])
    if origin is Literal:
        return _literal_reader(get_args(hint))
    if origin in (Union, types.UnionType):  # `Plan | None`: absent or an object, never null
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return _reader(inner)
    if issubclass(hint, StrEnum):
        return _enum_reader(hint)
    return lambda value, path: build(hint, value, path)


def _marker_reader(marker: Any) -> Reader:
    def read(value: object, path: str) -> object:
        try:
            return marker.check(value)
        except BadValue as error:
            raise ProtocolError(f"{path}: {error}") from None

    return read


def _enum_reader(enum: type[StrEnum]) -> Reader:
    def read(value: object, path: str) -> object:
        try:
            return enum(value)  # type: ignore[arg-type]  # anything but text is refused by the enum itself
        except ValueError:
            raise ProtocolError(f"{path}: must be one of {', '.join(enum)}") from None

    return read


def _literal_reader(allowed: tuple[object, ...]) -> Reader:
    def read(value: object, path: str) -> object:
        if value not in allowed:
            raise ProtocolError(f"{path}: must be one of {', '.join(map(str, allowed))}")
        return value

    return read


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: _plain(item) for name, item in pairs if item is not None}
    return value
