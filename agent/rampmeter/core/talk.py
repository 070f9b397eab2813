"""When to speak to the coordinator next: at once, after a wait that was told, at a heartbeat. Pure.

Decides the moment only, never the words: those are the pacer's. It must never keep anything back for long: whatever
answer comes ends the silence and the back-off with it.
"""

from rampmeter.core.messages import Plan


class Talk:
    """One per attempt. `registered`: also where there is nobody to register with."""

    __slots__ = ("_heartbeat_at_s", "_retry_at_s", "is_silent", "registered")

    def __init__(self, *, now_s: float, registered: bool) -> None:
        self.registered = registered
        self.is_silent = False
        """The newest word had no answer."""
        self._retry_at_s = 0.0
        self._heartbeat_at_s = now_s

    # -- what to do --------------------------------------------------------------------------------------------

    def may_ask(self, now_s: float) -> bool:
        """Nobody has told to wait until later."""
        return now_s >= self._retry_at_s

    def may_beat(self, now_s: float) -> bool:
        """A heartbeat is due."""
        return self.registered and now_s >= self._heartbeat_at_s

    def changes(self) -> tuple[float, ...]:
        """The times at which something changes by itself."""
        return (self._retry_at_s, self._heartbeat_at_s)

    # -- what happened -----------------------------------------------------------------------------------------

    def hurries(self) -> None:
        """There is something new to say, which waits for nothing."""
        self._retry_at_s = 0.0

    def told_to_wait(self, until_s: float) -> None:
        """The coordinator wants to hear of it again by then."""
        self._retry_at_s = until_s

    def answered(self, now_s: float, plan: Plan | None, *, confirm: bool, of_reread: bool) -> None:
        """Any answer. `confirm` wants another word at once, and any word puts off the next heartbeat.

        Not those to what is read back: it takes long, and training goes on meanwhile.
        """
        self.is_silent, self._retry_at_s = False, 0.0
        if confirm:
            self._heartbeat_at_s = now_s
        elif not of_reread:
            self._heartbeat_at_s = now_s + (plan.heartbeat_s if plan else 0.0)

    def unanswered(self, now_s: float, retry_after_s: float) -> None:
        """No answer: nothing is said for so long."""
        self.is_silent = True
        self._retry_at_s = self._heartbeat_at_s = now_s + retry_after_s
