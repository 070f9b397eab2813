"""Signals that announce the end of the job. The handler only sets a flag; what was there before is chained."""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_log = logging.getLogger("rampmeter")

NOTICE_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class NoticeSignals:
    """Installed from the main thread only; elsewhere signals cannot be handled and that is logged."""

    def __init__(self, on_notice: Callable[[], None]) -> None:
        self._on_notice = on_notice
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Start listening."""
        if threading.current_thread() is not threading.main_thread():
            _log.info("not in the main thread: SIGTERM and SIGUSR1 are not handled here")
            return
        for number in NOTICE_SIGNALS:
            self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put back what was there, unless somebody has replaced us since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._on_notice()
        before = self._before.get(signal.Signals(number))
        if callable(before):
            before(number, frame)
