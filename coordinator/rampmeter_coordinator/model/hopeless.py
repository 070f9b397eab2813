"""Spares a walk along a queue looks that are in vain: who needs no less than one without room has none either.

About one walk, at one moment. Decides nothing: who has room is found out by `arming`.
"""

from rampmeter_coordinator.model.admission import Writer


class Hopeless:
    """Who had no room, by what it needed and from when: whoever comes later and needs no less then has none either."""

    def __init__(self) -> None:
        self._needs: list[tuple[int, float, str | None]] = []
        self.num_wishes = 0
        """Wishes for which no room was found; those of a tenant at its cap say nothing of the room."""

    def add(self, writer: Writer) -> None:
        """`writer` found no room."""
        if not writer.is_read:
            self._needs.append((writer.least_bytes_per_s, writer.from_s, writer.tenant))
            self.num_wishes += writer.tenant is None

    def covers(self, writer: Writer) -> bool:
        """Whether somebody before it, of no tenant or of the same, found no room for no more."""
        if writer.is_read:
            return False
        for least, from_s, tenant in self._needs:
            if (
                from_s == writer.from_s
                and least <= writer.least_bytes_per_s
                and tenant in (None, writer.tenant)
            ):
                return True
        return False
