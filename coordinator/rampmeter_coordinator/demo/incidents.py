"""When something is killed in act 2. Pure: looks at the records so far and at how far the act is.

The job dies between two checkpoints, when there is work to lose; the coordinator dies under a running write. Neither
waits for its moment for ever. A job that dies while it writes keeps its share of the storage for as long as its lease
runs, half a minute: here, where one writer has it all, that would be the rest of the act.
"""

from dataclasses import dataclass, field

from rampmeter_coordinator.demo.history import Chunk, Committed, Failed, Record, Saving, of_kind
from rampmeter_coordinator.demo.scenario import Scenario

_JOB_FROM, _JOB_SOON, _JOB_AT_LATEST = 0.35, 0.6, 0.75
_COORDINATOR_FROM, _COORDINATOR_AT_LATEST = 0.62, 0.8
_INTO_THE_WRITE = 0.3
_WORK_TO_LOSE_S = (3.0, 6.0)


@dataclass(slots=True, kw_only=True)
class Incidents:
    """Each happens once. Without a victim nothing does."""

    victim: str = ""
    with_coordinator: bool = False
    scenario: Scenario | None = None
    _done: set[str] = field(default_factory=set)

    def kills_job(self, records: list[Record], elapsed: float) -> bool:
        """The victim has a checkpoint to go back to and has trained on from it; late, no save in hand is enough."""
        if not self.victim or "job" in self._done or elapsed < _JOB_FROM:
            return False
        mine = [record for record in records if record.job == self.victim]
        commits, saves = of_kind(mine, Committed), of_kind(mine, Saving)
        if not commits:
            return False
        low_s, high_s = _WORK_TO_LOSE_S
        between = saves[-1].at_s < commits[-1].at_s
        work_s = max(record.at_s for record in mine) - commits[-1].at_s
        is_time = elapsed > _JOB_SOON or low_s < work_s < high_s
        return self._once("job", elapsed > _JOB_AT_LATEST or (between and is_time))

    def kills_coordinator(self, records: list[Record], elapsed: float) -> bool:
        """Somebody is writing under a lease, or it is getting late. After the job: what it held was given back."""
        if not self.with_coordinator or "coordinator" in self._done or elapsed < _COORDINATOR_FROM:
            return False
        if "job" not in self._done and elapsed < _JOB_AT_LATEST:
            return False
        jobs = {record.job for record in records}
        writes = any(self._is_mid_write([r for r in records if r.job == job]) for job in jobs)
        return self._once("coordinator", elapsed > _COORDINATOR_AT_LATEST or writes)

    def _is_mid_write(self, records: list[Record]) -> bool:
        saves = of_kind(records, Saving)
        if not saves or self.scenario is None:
            return False
        since = [record for record in records if record.at_s >= saves[-1].at_s]
        if any(isinstance(record, Committed | Failed) for record in since):
            return False
        size = next((job.state_bytes for job in self.scenario.jobs if job.name == saves[-1].job), 0)
        return sum(chunk.num_bytes for chunk in of_kind(since, Chunk)) > _INTO_THE_WRITE * size

    def _once(self, what: str, happens: bool) -> bool:
        if happens:
            self._done.add(what)
        return happens
