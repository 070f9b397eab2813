"""A pool whose writers report to its learned cap every five seconds, without storage: what they say is given."""

from rampmeter_coordinator.model.capacity import Capacity, Report

CEILING = 1_000_000
RENEWAL_S = 5.0


def report(
    granted: int, got: float, *, throttled: float = 0.0, busy: float = 0.0, time_s: float = RENEWAL_S
) -> Report:
    """A report of `time_s`: `got` bytes/s of what was granted, the rest of the time blocked."""
    return Report(
        bytes_per_s=granted,
        num_bytes=int(got * time_s),
        throttled_s=throttled * time_s,
        blocked_s=(1.0 - throttled - busy) * time_s,
        busy_s=busy * time_s,
    )


class Pool:
    """Writers that report every five seconds."""

    def __init__(self) -> None:
        self.capacity = Capacity(CEILING)
        self.now_s = 0.0

    def round(self, **reports: Report) -> int:
        """All report once, what they say is in use; the cap after it."""
        self.now_s += RENEWAL_S
        for uid, said in reports.items():
            self.capacity.reported(uid, said, self.now_s)
        self.capacity.passed(self.now_s, sum(said.bytes_per_s for said in reports.values()))
        return self.capacity.cap_bytes_per_s

    def save(self, uid: str, said: Report) -> int:
        """A save under a lease of its own, too short for a renewal: its only report comes at its end."""
        self.capacity.granted(uid, said.bytes_per_s, self.now_s)
        self.now_s += said.total_s
        self.capacity.reported(uid, said, self.now_s)
        self.capacity.left(uid)
        self.capacity.passed(self.now_s, said.bytes_per_s)
        return self.capacity.cap_bytes_per_s

    def rounds(self, number: int, **reports: Report) -> int:
        for _ in range(number):
            self.round(**reports)
        return self.capacity.cap_bytes_per_s

    def known(self, *uids: str, granted: int = CEILING // 2, **others: int) -> None:
        """These writers have filled their grants before: all the same, or each its own."""
        grants = dict.fromkeys(uids, granted) | others
        self.rounds(2, **{uid: report(granted, granted, throttled=0.5) for uid, granted in grants.items()})


def fallen(*uids: str) -> Pool:
    """A pool whose cap was just lowered to two fifths, half of it granted to each of two writers."""
    pool = Pool()
    pool.known(*uids)
    pool.round(**{uid: report(500_000, 200_000) for uid in uids})
    return pool
