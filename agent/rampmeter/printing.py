"""Printing an answer: also to a reader that has seen enough, to a terminal without Unicode, to a disk that is full.

For commands that print one text and end. Decides nothing; logs nothing.
"""

import os
import sys
from collections.abc import Mapping

from rampmeter.core.errors import ConfigError


def print_answer(text: str, *, plain: Mapping[int, int] | None = None) -> None:
    """Write `text` to standard output as it is; ConfigError if that takes nothing.

    plain  what stands for characters that the terminal may not have; others become escapes
    """
    if sys.stdout is None:  # closed by the caller: nobody reads
        return
    try:
        sys.stdout.write(_as_shown(text, sys.stdout.encoding or "utf-8", plain or {}))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        _forget_the_rest()
    except OSError as error:
        _forget_the_rest()
        raise ConfigError(f"cannot print the answer: {error.strerror}") from None


def _as_shown(text: str, encoding: str, plain: Mapping[int, int]) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(plain).encode(encoding, "backslashreplace").decode(encoding)
    return text


def _forget_the_rest() -> None:
    """What is left in the buffer must go somewhere when Python closes standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
