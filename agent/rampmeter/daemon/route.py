"""The way of a save through a writer process, for a saver that has another through a thread of its own.

Decides which saves go this way, and owns what the two processes share. Nothing is started before the first use.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from rampmeter.core.clock import Clock
from rampmeter.core.errors import CommitError, ConfigError
from rampmeter.core.messages import FailReason
from rampmeter.daemon.arena import Arena, host_bytes, num_tensors
from rampmeter.daemon.following import Company
from rampmeter.daemon.guardian import Guardian, LostAtCommit, NoWriterYet
from rampmeter.daemon.mode import MOST_IN_A_THREAD, Mode, chosen
from rampmeter.daemon.parcel import Order
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.ranks.words import Beside, as_line
from rampmeter.throttle import Throttle
from rampmeter.together import Party

_log = logging.getLogger("rampmeter")


class ProcessRoute:
    """One per attempt. Staging happens on the caller's thread; all else in others.

    A job of one rank is told here what keeps its saves from this way; of many ranks each says so in `beside`, and what
    follows for all is told once for all.
    """

    def __init__(self, wish: Mode, *, writer_class: type | None, num_ranks: int, clock: Clock) -> None:
        self._wish = wish
        self._writer_class = writer_class
        self._is_alone = num_ranks == 1
        self._arena = Arena(clock)
        self._given_up: str | None = None
        self._guardian = Guardian(clock) if self._is_alone else Guardian(clock, on_given_up=self._give_up)
        self._told: str | None = None
        refusal = self._refusal()
        self._beside = Beside(is_known=refusal is not None, obstacle=as_line(refusal or ""))

    def _give_up(self, why: str) -> None:
        self._given_up = why

    @property
    def last_stage_s(self) -> float:
        """How long the last staging took; 0 before the first."""
        return self._arena.last_stage_s

    def is_for(self, state: Mapping[str, Any]) -> bool:
        """Whether this snapshot goes this way, if this process alone is asked."""
        count = num_tensors(state)
        size_bytes = host_bytes(state) if count <= MOST_IN_A_THREAD else 0  # training waits for this
        way = chosen(self._wish, num_tensors=count, host_bytes=size_bytes, obstacle=None)
        is_wished = way is Mode.PROCESS
        obstacle = self._obstacle(state) if is_wished or not self._is_alone else None
        self._beside = Beside(is_known=True, is_wished=is_wished, obstacle=as_line(obstacle or ""))
        if is_wished and obstacle is not None and self._is_alone and self._guardian.is_usable:
            self._tell(obstacle)
        return is_wished and obstacle is None

    def _tell(self, obstacle: str) -> None:
        if obstacle == self._told:
            return
        self._told = obstacle
        level = logging.WARNING if self._wish is Mode.PROCESS else logging.INFO
        _log.log(level, "saves are written in a thread of training, not in a process beside it: %s", obstacle)

    def _obstacle(self, state: Mapping[str, Any]) -> str | None:
        return self._refusal() or self._arena.why_not(state)

    def _refusal(self) -> str | None:
        """What keeps every state from this way."""
        if self._wish is Mode.THREAD:
            return "its mode is thread"
        if not hasattr(os, "memfd_create") or not sys.executable:
            return "this system has no memory to share, or no interpreter to start"
        if not self._guardian.is_usable:
            return self._given_up or "there is no process for it any more"
        if self._writer_class is not None and self._writer_class.__module__ == "__main__":
            return f"{self._writer_class.__name__} is defined in the training script; move it into a module"
        return None

    @property
    def beside(self) -> Beside:
        """What the other ranks should know of it. Asked often."""
        obstacle = self._refusal()
        told = self._beside if obstacle is None else replace(self._beside, obstacle=as_line(obstacle))
        return replace(told, group=self._guardian.group)

    def hurry(self) -> None:
        """The job is about to end. Takes no lock."""
        self._guardian.is_hurried = True

    def warm_up(self) -> None:
        """Have a writer started if there is none."""
        self._guardian.warm_up()

    def stage(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the tensors to where the writer sees them, and have one started if there is none.

        ConfigError, and told to the other ranks, for what cannot stand there.
        """
        self._guardian.warm_up()
        try:
            return self._arena.stage(state)
        except ConfigError as error:
            self.note_obstacle(str(error))
            raise

    def note_obstacle(self, why: str) -> None:
        """Such a state cannot go this way."""
        self._beside = replace(self._beside, is_known=True, obstacle=as_line(why))

    def party_here(self, party: Party) -> Party:
        """The same with the group in which all writers are. CommitError if this rank's is not in it any more."""
        if party.group is not None:
            return party
        group = self._guardian.group
        if group == 0:
            why = "the process that writes checkpoints was ended just now, and the others have met without it"
            raise CommitError(why, reason=FailReason.WRITER_LOST)
        return replace(party, group=group)

    def start(
        self,
        placed: dict[str, Any],
        order: Callable[[int], Order],
        *,
        throttle: Throttle,
        on_first_byte: Callable[[int], None],
        on_committed: Callable[[], None],
        write_here: Callable[[dict[str, Any]], None],
        company: Company | None = None,
    ) -> "Future[None]":
        """Have what was staged written; the future fails with what stopped it. All else happens in another thread.

        `order` is asked there, with the number of the save. `on_committed` is called before the future is done, also
        where the writer was lost at its last word: FileNotFoundError says that there is no checkpoint. `write_here`
        writes and commits a snapshot in the calling thread: one in a hurry does not wait for a process.
        """

        def save() -> None:
            try:
                self._save(placed, order, throttle, on_first_byte, on_committed, company=company)
            except NoWriterYet:
                _log.info("a save in a hurry is written in a thread: the process for it is not there yet")
                write_here(self._arena.here(placed))

        return in_thread_of_its_own(save)

    def _save(
        self,
        placed: dict[str, Any],
        order: Callable[[int], Order],
        throttle: Throttle,
        on_first_byte: Callable[[int], None],
        on_committed: Callable[[], None],
        *,
        company: Company | None,
    ) -> None:
        try:
            self._guardian.save(order, placed, self._arena, throttle, on_first_byte, company=company)
        except LostAtCommit as error:
            try:
                on_committed()
            except FileNotFoundError:
                raise error from None
        else:
            on_committed()

    def give_back(self) -> None:
        """The memory, until the next staging; a writer that had a snapshot holds it, too, and goes."""
        if self._arena.descriptor is not None:
            self._guardian.rest()
        self._arena.close()

    def close(self, *, hangs: bool = False) -> None:
        """End the writer, and give the memory back. A save in flight is to be aborted before.

        One that hangs in the storage is not waited for.
        """
        if hangs:
            self._guardian.close(0.0)
        else:
            self._guardian.close()
        self.give_back()
