"""Training's hand on a save that another process writes: what the throttle hears goes into the cell at once."""

import threading
from dataclasses import replace

from rampmeter.daemon.cell import Cell, Steering
from rampmeter.daemon.tidings import NOTHING_YET, Tidings, TidingsCell
from rampmeter.throttle import FlowCounters


class RemoteFlow:
    """One per save. Any thread may call it."""

    def __init__(self, number: int, steering: Cell, tidings: TidingsCell) -> None:
        self.number = number
        self._steering = steering
        self._tidings = tidings
        self._lock = threading.Lock()
        self._said = Steering.of_this_process(number)
        self._last: Tidings | None = None
        self._steering.write(self._said)

    def steer(self, bytes_per_s: int | None, until_s: float | None, abort_reason: str) -> None:
        """What the writer may do from now on."""
        with self._lock:
            self._said = replace(
                self._said,
                word=self._said.word + 1,
                bytes_per_s=bytes_per_s,
                until_s=until_s,
                abort_reason=abort_reason,
            )
            self._steering.write(self._said)

    def has_rate(self, now_s: float) -> bool:
        """Whether the writer may write now."""
        with self._lock:
            said = self._said
        return said.bytes_per_s != 0 and (said.until_s is None or now_s < said.until_s)

    def look(self) -> Tidings | None:
        """The newest that is known of this save."""
        with self._lock:
            self._last = self._tidings.read(self.number) or self._last
            return self._last

    @property
    def is_followed(self) -> bool:
        """Whether the writer obeys the newest word; one that has not begun reads it before it does."""
        tidings = self.look()
        with self._lock:
            return tidings is None or tidings.followed >= self._said.word

    @property
    def is_in_storage(self) -> bool:
        """Whether the writer is in a call into the storage that carries no bytes."""
        tidings = self.look()
        return tidings is not None and tidings.in_storage

    def counters(self) -> FlowCounters:
        """As the writer counted them last."""
        tidings = self.look()
        return NOTHING_YET if tidings is None else tidings.counters
