"""Whatever order things go wrong in, nothing is seen that must not be; `make soak` goes on where this stops."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from invariants.machine import AdversarialMachine

NUM_EVENTS = 100_000


def test_no_order_of_faults_leads_over_the_bound() -> None:
    """More than 100,000 events of chosen histories: never over, nobody starved, no fence that went back."""
    before = AdversarialMachine.num_events, AdversarialMachine.num_saves
    run_state_machine_as_test(
        AdversarialMachine,
        settings=settings(
            max_examples=16,
            stateful_step_count=30,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    num_events = AdversarialMachine.num_events - before[0]
    num_saves = AdversarialMachine.num_saves - before[1]
    print(f"{num_events:,} events, {num_saves:,} saves")
    assert num_events >= NUM_EVENTS
    assert num_saves >= 100
