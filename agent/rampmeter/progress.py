"""A line on a terminal that shows how far a command is, for those that take long."""

from typing import TextIO

_BAR = 24


class Bar:
    """A line on a terminal that shows how far a command is. `end` takes it away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    def show(self, what: str, share: float) -> None:
        done = round(_BAR * min(1.0, share))
        line = f"  [{'#' * done}{'.' * (_BAR - done)}] {what}"
        if line != self._shown:
            self._write(line)

    def end(self) -> None:
        if self._shown:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(f"\r{line:<{len(self._shown)}}")
        self._stream.flush()
        self._shown = line
