"""The writers of a pool: whoever has not reported for long is forgotten."""

from rampmeter_coordinator.model.flow import FRESH_S, Flows
from rampmeter_coordinator.model.habits import Habits
from rampmeter_coordinator.model.report import Report


def test_who_has_not_reported_for_long_says_nothing_any_more() -> None:
    """Its last report, of no byte, counts for a while and then no more."""
    flows = Flows(Habits(1000))
    still = Report(bytes_per_s=100, num_bytes=0, throttled_s=0.0, blocked_s=1.0, busy_s=0.0)
    flows.add("a", still, 10.0)
    assert flows.stand_still(10.0 + FRESH_S)
    assert not flows.stand_still(10.1 + FRESH_S)
