"""Signals that announce the end of the job. The handler only sets a flag; what was there before is chained.

A child that training forks is not told of the job's end through us: it gets back what was there before, so that
Process.terminate() ends it as it ends any other.
"""

import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

_log = logging.getLogger("rampmeter")

NOTICE_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


_installed: "weakref.WeakSet[NoticeSignals]" = weakref.WeakSet()


class NoticeSignals:
    """Installed from the main thread only; elsewhere signals cannot be handled and that is logged."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Start listening."""
        if threading.current_thread() is not threading.main_thread():
            _log.info("not in the main thread: SIGTERM and SIGUSR1 are not handled here")
            return
        for number in NOTICE_SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        _installed.add(self)

    def restore(self) -> None:
        """Put back what was there, unless somebody has replaced us since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before.clear()
        _installed.discard(self)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._on_notice(signal.Signals(number).name)
        before = self._before.get(signal.Signals(number))
        if callable(before):
            before(number, frame)


def _restore_in_child() -> None:
    for signals in list(_installed):
        signals.restore()


os.register_at_fork(after_in_child=_restore_in_child)
