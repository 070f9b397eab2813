"""Who watches over the writer process: starts it ahead of need, follows each save, ends what hangs, begins again once.

A writer that is lost costs the save that it had and nothing else; one that is lost a second time is not replaced, and
this attempt of the job goes on without one. Nothing here blocks training.
"""

import atexit
import logging
import threading
from collections.abc import Callable
from typing import Any

from rampmeter.core.clock import Clock
from rampmeter.core.errors import CommitError, ConfigError, LeaseLost, RampmeterError
from rampmeter.core.messages import FailReason
from rampmeter.daemon.arena import Arena
from rampmeter.daemon.flow import RemoteFlow
from rampmeter.daemon.following import Company, Following, Hanging, error_of
from rampmeter.daemon.hired import HiredWriter, WriterLost
from rampmeter.daemon.parcel import Order
from rampmeter.daemon.tidings import LOOK_S, Stage
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")

START_LIMIT_S = 120.0
"""For a process that only imports torch: about 4 s, from a cold network file system a minute."""

END_LIMIT_S = 2.0
_MOST_LOSSES = 2
_TURN_S = 0.25


class NoWriterYet(RampmeterError):
    """A save that is in a hurry does not wait for the process that would write it."""


class LostAtCommit(CommitError):
    """The writer was lost when its save may have been committed already: the disk knows."""


def _warn(detail: str) -> None:
    _log.warning("saves are written in a thread of training from now on: %s", detail)


class Guardian:
    """One per attempt. `save` is called from one thread at a time, the others from any.

    `on_given_up` is called once, with the reason for which there is no writer any more.
    """

    def __init__(
        self,
        clock: Clock,
        hire: Callable[[], HiredWriter] = HiredWriter,
        *,
        on_given_up: Callable[[str], None] = _warn,
    ) -> None:
        self.is_hurried = False
        """The job is about to end: a save of a single rank waits for no writer, but raises NoWriterYet."""
        self._group = 0
        self._clock = clock
        self._hire = hire
        self._on_given_up = on_given_up
        self._lock = threading.Lock()
        self._num_losses = 0
        self._closed = False
        self._writer: HiredWriter | None = None
        self._starting: threading.Thread | None = None
        self._last_number = 0

    @property
    def is_usable(self) -> bool:
        """Whether the next save may be given to a writer process."""
        return self._num_losses < _MOST_LOSSES and not self._closed

    @property
    def pid(self) -> int | None:
        """Of the writer that is there now."""
        writer = self._writer
        return None if writer is None else writer.pid

    @property
    def group(self) -> int:
        """In which the writer that is there now is with those of the other ranks; 0 = none."""
        writer = self._writer
        return self._group if writer is not None and writer.is_alive else 0

    def warm_up(self) -> None:
        """Have a writer started, in the background, unless there is one or must be none."""
        with self._lock:
            if self._writer is None and self._starting is None and self.is_usable:
                self._starting = threading.Thread(
                    target=self._start, name="rampmeter-writer-start", daemon=True
                )
                self._starting.start()

    def save(
        self,
        order: Callable[[int], Order],
        placed: dict[str, Any],
        arena: Arena,
        throttle: Throttle,
        on_first_byte: Callable[[int], None],
        *,
        company: Company | None = None,
    ) -> None:
        """Have a save made and wait for its end; `order` is asked with its number, when the writer is there.

        `throttle` steers it from here on, `company` are the other ranks if there are any. Raises CommitError with the
        reason for which there is no checkpoint, LeaseLost if it was aborted before it began, or NoWriterYet.
        """
        writer = self._ready_writer(throttle, may_hurry=company is None)
        self._last_number += 1
        flow = RemoteFlow(self._last_number, writer.steering, writer.tidings)
        throttle.lend(flow)
        try:
            writer.take(order(self._last_number), placed, arena)
            following = Following(
                writer, flow, throttle, on_first_byte=on_first_byte, company=company, clock=self._clock
            )
            outcome = following.to_its_end()
        except WriterLost as error:
            raise self._lost(FailReason.WRITER_LOST, str(error), flow, company) from error
        except Hanging as error:
            raise self._lost(error.trouble.reason, error.trouble.detail, flow, company) from error
        except (CommitError, ConfigError):  # the latter of a state that could not be handed over
            raise
        except BaseException:
            self._replace("was left alone with a save")  # it would answer the next order with this one's end
            raise
        self._group = outcome.group
        if outcome.reason is not None:
            raise error_of(outcome)

    def rest(self) -> None:
        """No save is in flight and none is near: the writer goes, and with it what it holds of the last snapshot."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._group = 0
        if writer is not None:
            threading.Thread(target=_end, args=(writer,), name="rampmeter-writer-end", daemon=True).start()

    def close(self, limit_s: float = END_LIMIT_S) -> None:
        """End the writer, which may take `limit_s` to go by itself. A save in flight is to be aborted before."""
        with self._lock:
            self._closed = True
            writer, self._writer = self._writer, None
            starting = self._starting
        if writer is not None:
            _end(writer, limit_s)
        if starting is not None:
            starting.join(END_LIMIT_S)

    # -- a save ------------------------------------------------------------------------------------------------

    def _ready_writer(self, throttle: Throttle, *, may_hurry: bool) -> HiredWriter:
        """The writer, once it has started; one that was ended between two saves costs none of them."""
        writer = self._writer
        if writer is not None and not writer.is_alive:
            self._replace("was ended between two saves")
        while self._writer is None:
            if not self.is_usable:
                detail = "the process that writes checkpoints did not start"
                raise CommitError(detail, reason=FailReason.WRITER_LOST)
            if throttle.abort_reason is not None:
                raise LeaseLost(throttle.abort_reason)
            if self.is_hurried and may_hurry:
                raise NoWriterYet("the process that writes checkpoints is not there yet")
            self.warm_up()
            self._clock.sleep(LOOK_S)
        return self._writer

    def _lost(
        self, reason: FailReason, detail: str, flow: RemoteFlow, company: Company | None
    ) -> CommitError:
        tidings = flow.look()
        is_late = tidings is not None and tidings.stage is Stage.COMMITTING
        kind = LostAtCommit if is_late else CommitError
        error = kind(f"the process that writes checkpoints was lost: it {detail}", reason=reason)
        if company is not None and not is_late:
            company.failed(error)
        self._replace(detail)
        return error

    def _replace(self, detail: str) -> None:
        """The writer is gone, or must go; another one is started unless it is the second."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._group = 0
        if writer is not None:
            _end(writer, limit_s=0.0)
        self._count_loss(detail)

    def _count_loss(self, detail: str) -> None:
        if self._closed:
            return
        self._num_losses += 1
        if self.is_usable:
            self.warm_up()
        else:
            self._on_given_up(f"the process for it was lost twice; it {detail}")

    # -- starting ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Runs in a thread of its own: importing torch takes seconds."""
        try:
            self._install(self._hired())
        except (WriterLost, OSError) as error:
            with self._lock:
                self._starting = None
            self._count_loss(f"could not be started: {error}" if isinstance(error, OSError) else str(error))

    def _install(self, writer: HiredWriter | None) -> None:
        with self._lock:
            self._starting = None
            if not self._closed:
                self._writer = writer
                return
        if writer is not None:
            _end(writer)

    def _hired(self) -> HiredWriter | None:
        """A writer that is ready; None if there must be none any more."""
        writer = self._hire()
        atexit.register(writer.kill)
        until_s = self._clock.now() + START_LIMIT_S
        try:
            while not writer.has_started(_TURN_S):
                if self._closed:
                    _end(writer, limit_s=0.0)  # it has begun nothing that it could end
                    return None
                if self._clock.now() >= until_s:
                    raise WriterLost(f"did not start within {START_LIMIT_S:.0f} s")  # noqa: TRY301
        except WriterLost:
            _end(writer)
            raise
        return writer


def _end(writer: HiredWriter, limit_s: float = END_LIMIT_S) -> None:
    writer.end(limit_s)
    atexit.unregister(writer.kill)
