"""What a field of a message may hold: duck-typed `Annotated` markers that both sides read.

The coordinator's pydantic asks a marker for a core schema, the agent's decoder (`core.decode`) asks it to `check` a
value: one definition, the same verdicts. Nothing here imports pydantic. Markers are strict: `true` is no number, `"3"`
is no number, `3.0` is no integer, NaN and infinities are never a value, and everything has bounds.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

MAX_BYTES = 10**18
MAX_BYTES_PER_S = 10**16
MAX_SECONDS = 1e10
MAX_COUNT = 2**53 - 1


class BadValue(ValueError):
    """A value that its marker refuses. The message says what was expected and never echoes the value."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer within [ge, le]."""

    ge: int
    le: int

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "int", "strict": True, "ge": self.ge, "le": self.le}

    def check(self, value: object) -> int:
        """`value` if it is allowed, else BadValue."""
        if type(value) is not int or not self.ge <= value <= self.le:
            raise BadValue(f"must be an integer from {self.ge} to {self.le}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within [ge, le]; integers are taken as numbers."""

    ge: float
    le: float

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> dict[str, Any]:
        return {
            "type": "float",
            "strict": True,
            "ge": self.ge,
            "le": self.le,
            "allow_inf_nan": False,
        }

    def check(self, value: object) -> float:
        """`value` as a float if it is allowed, else BadValue."""
        if type(value) is int:  # compared as an integer: a huge one has no float
            number: int | float = value
        elif type(value) is float and math.isfinite(value):
            number = value
        else:
            raise BadValue(f"must be a finite number from {self.ge:g} to {self.le:g}")
        if not self.ge <= number <= self.le:
            raise BadValue(f"must be a finite number from {self.ge:g} to {self.le:g}")
        return float(number)


@dataclass(frozen=True, slots=True)
class Text:
    """A string that the whole of `pattern` matches."""

    pattern: str
    max_chars: int

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> dict[str, Any]:
        return {
            "type": "str",
            "strict": True,
            "pattern": f"^{self.pattern}$",
            "max_length": self.max_chars,
        }

    def check(self, value: object) -> str:
        """`value` if it is allowed, else BadValue."""
        if not isinstance(value, str) or len(value) > self.max_chars or not re.fullmatch(self.pattern, value):
            raise BadValue(f"must be text of at most {self.max_chars} characters like {self.pattern}")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, nothing else."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "bool", "strict": True}

    def check(self, value: object) -> bool:
        """`value` if it is a bool, else BadValue."""
        if not isinstance(value, bool):
            raise BadValue("must be true or false")
        return value


Marker = Whole | Number | Text | Flag

JOB_UID = Text(r"[0-9a-f]{32}", 32)
NAME = Text(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]*", 128)
"""Names of jobs and pools: letters, digits and `._:@+=-`, starting with a letter or digit, 1 to 128 characters."""

_COUNT = Whole(0, MAX_COUNT)
_BYTES = Whole(0, MAX_BYTES)
_RATE = Whole(0, MAX_BYTES_PER_S)
_SECONDS = Number(0.0, MAX_SECONDS)

Uid = Annotated[str, JOB_UID]
Name = Annotated[str, NAME]
Bool = Annotated[bool, Flag()]
Count = Annotated[int, _COUNT]
PositiveCount = Annotated[int, Whole(1, MAX_COUNT)]
Attempt = Annotated[int, Whole(1, 10**9)]
Bytes = Annotated[int, _BYTES]
BytesPerS = Annotated[int, _RATE]
Seconds = Annotated[float, _SECONDS]
PositiveSeconds = Annotated[float, Number(1e-3, MAX_SECONDS)]
Price = Annotated[float, Number(0.0, 1e6)]

# Optional fields may be absent and are never null on the wire: the marker decides, so `null` is refused by name.
MaybeCount = Annotated[int | None, _COUNT]
MaybeName = Annotated[str | None, NAME]
MaybeBytes = Annotated[int | None, _BYTES]
MaybeRate = Annotated[int | None, _RATE]
MaybeSeconds = Annotated[float | None, _SECONDS]
MaybeShare = Annotated[float | None, Number(0.0, 1.0)]
MaybePositiveSeconds = Annotated[float | None, Number(1e-3, MAX_SECONDS)]
