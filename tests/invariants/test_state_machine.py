"""Whatever order things go wrong in, nothing is seen that must not be; `make soak` goes on where this stops."""

from hypothesis.stateful import run_state_machine_as_test

from invariants.machine import AdversarialMachine
from invariants.soak import machine_settings

NUM_EVENTS = 100_000
NUM_RUNS = 16


def test_no_order_of_faults_leads_over_the_bound() -> None:
    """More than 100,000 events of chosen histories: never over, nobody starved, no fence that went back."""
    before = AdversarialMachine.num_events, AdversarialMachine.num_saves
    run_state_machine_as_test(AdversarialMachine, settings=machine_settings(NUM_RUNS, derandomize=True))
    num_events = AdversarialMachine.num_events - before[0]
    num_saves = AdversarialMachine.num_saves - before[1]
    print(f"{num_events:,} events, {num_saves:,} saves")
    assert num_events >= NUM_EVENTS
    assert num_saves >= 100
