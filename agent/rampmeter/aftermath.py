"""What the end of a save means: whether it failed and for which reason, what is told, and what of it is removed.

A save that fails or is aborted reports a reason and removes its own directory; nothing here deletes another save's
files, nor anything that is committed. In a job of many ranks rank 0 alone removes.
"""

import logging
import threading

from rampmeter import dcp
from rampmeter.core.clock import Clock
from rampmeter.core.messages import FailReason
from rampmeter.failing import in_one_line, reason_of
from rampmeter.files import remove_tree
from rampmeter.inflight import Save
from rampmeter.layout import Root, StepName
from rampmeter.report import SaveReport
from rampmeter.troubles import Failed, Troubles

_log = logging.getLogger("rampmeter")


class Aftermath:
    """One per attempt, used by whatever thread ends a save. `is_first`: this is rank 0."""

    def __init__(self, root: Root, *, is_first: bool, clock: Clock) -> None:
        self._root = root
        self._is_first = is_first
        self._clock = clock
        self._leftovers: set[StepName] = set()
        """Directories of failed saves that could not be removed yet: the storage was in trouble."""
        self._told: set[StepName] = set()
        self._troubles = Troubles()
        self._telling = threading.Lock()

    def failure(self, save: Save, error: BaseException | None) -> BaseException | None:
        """What is committed stays so, whatever failed afterwards. Rank 0 knows; the others believe what they hear."""
        if save.manifest is not None:
            return None
        if self._is_first and error is None:
            return RuntimeError("no manifest was written")
        return error if save.joined is None or error is None else save.joined.cause_of(error)

    def tell(self, save: Save, error: BaseException | None) -> SaveReport:
        """The report, told once, when it is first known: a thread that watches may know before the one that flushes."""
        with self._telling:
            if save.report is not None:
                return save.report
            reason = None if error is None else self._reason(save, error)
            save.report = save.as_report(reason, self._clock.now())
        save.on_end(save.report)
        if reason is None:
            self._troubles.committed(save.name.step)
        return save.report

    def _reason(self, save: Save, error: BaseException) -> FailReason:
        cause = dcp.cause_of(error)
        reason = save.aborted_for or reason_of(cause)
        said = in_one_line(cause)
        if reason is FailReason.UNKNOWN:
            said = f"{type(cause).__name__}: {said}"
            _log.debug("step %d was not saved: where that comes from", save.name.step, exc_info=cause)
        self._troubles.failed(Failed(step=save.name.step, reason=reason, said=said))
        return reason

    def tidy_up(self, save: Save, failure: BaseException | None) -> None:
        """Remove what failed saves have left, this one's and what could not be removed before."""
        if failure is not None and self._is_first:
            self._leftovers.add(save.name)
        with save.throttle.in_storage():
            for name in list(self._leftovers):
                self._remove(name)

    def _remove(self, name: StepName) -> None:
        try:
            remove_tree(self._root.directory(name))
        except OSError as error:
            if name not in self._told:  # each save tries again
                _log.warning(
                    "the leftovers of %s stay until a save ends that can remove them: %s", name, error
                )
            self._told.add(name)
        else:
            self._leftovers.discard(name)
            self._told.discard(name)
