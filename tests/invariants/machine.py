"""The adversarial world as a Hypothesis state machine: what goes wrong is chosen, tried, and made small where it fails.

Each rule is one thing that goes wrong (or that is told to the coordinator) and some time after it; one second of the
world is many events. At the end everything heals and everybody must get on. The observer judges throughout.
"""

from dataclasses import replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from invariants.faults import CALM
from invariants.process import Process
from invariants.world import POOL, World

NUM_JOBS = 8
QUIET_S = 1200.0

jobs = st.integers(0, NUM_JOBS - 1)
then_s = st.sampled_from([0.0, 1.0, 6.0, 20.0, 65.0])
"""Time that passes after a fault: none, within a renewal, a hold, up to silence."""

pools = st.sampled_from(
    [
        POOL,
        replace(POOL, utilisation=1.0),
        replace(POOL, utilisation=1.0, max_writers=1),
        replace(POOL, max_writers=2),
        replace(POOL, max_tenant_bytes_per_s=300),
        replace(POOL, shared_reads=True),
        replace(POOL, read_capacity_bytes_per_s=400),
    ]
)


class AdversarialMachine(RuleBasedStateMachine):
    """One world per run. `num_events` counts the events of all runs."""

    num_events: ClassVar[int] = 0
    num_saves: ClassVar[int] = 0

    @initialize(seed=st.integers(0, 2**16), pool=pools)
    def begin(self, seed: int, pool: object) -> None:
        self.world = World(seed, replace(CALM, delay_s=1.0), num_jobs=NUM_JOBS, config=pool)
        self.world.run(30.0)

    def _newest(self, number: int) -> Process:
        return self.world.process_of(self.world.jobs[number])

    @invariant()
    def nothing_is_seen_that_must_not_be(self) -> None:
        """What the observer saw after each event since the last rule."""
        if hasattr(self, "world"):
            assert not self.world.violations, self.world.violations[0]

    def teardown(self) -> None:
        """Everything heals, and then everybody must get on."""
        if not hasattr(self, "world"):
            return
        if not self.world.violations:
            self.world.calm_down(QUIET_S)
        cls = AdversarialMachine
        cls.num_events += self.world.num_events
        cls.num_saves += sum(len(job.saved_s) for job in self.world.jobs)
        assert not self.world.violations, self.world.violations[0]

    # -- time and network ----------------------------------------------------------------------------------------

    @rule(for_s=st.sampled_from([5.0, 30.0, 61.0, 92.0, 240.0]))
    def time_passes(self, for_s: float) -> None:
        self.world.run(for_s)

    @rule(
        loss=st.sampled_from([0.0, 0.1, 0.4]),
        duplicates=st.sampled_from([0.0, 0.3]),
        delay_s=st.sampled_from([0.05, 4.0]),
        then_s=then_s,
    )
    def the_network_changes(self, loss: float, duplicates: float, delay_s: float, then_s: float) -> None:
        """Loss, copies that arrive up to 80 s late, delays and with them reordering."""
        self.world.faults = replace(self.world.faults, loss=loss, duplicates=duplicates, delay_s=delay_s)
        self.world.run(then_s)

    @rule(
        way=st.sampled_from(["up", "down", "both"]),
        some=st.sets(jobs, min_size=1),
        for_s=st.sampled_from([5.0, 20.0, 70.0, 150.0]),
        then_s=then_s,
    )
    def some_are_cut_off(self, way: str, some: set[int], for_s: float, then_s: float) -> None:
        self.world.cut([self._newest(number) for number in sorted(some)], way, for_s)
        self.world.run(then_s)

    @rule(way=st.sampled_from(["up", "down", "both"]), for_s=st.sampled_from([20.0, 150.0]), then_s=then_s)
    def everybody_is_cut_off(self, way: str, for_s: float, then_s: float) -> None:
        self.world.cut(self.world.processes, way, for_s)
        self.world.run(then_s)

    @rule(back=st.integers(1, 20), late_s=st.sampled_from([0.0, 10.0, 80.0]), then_s=then_s)
    def an_old_request_arrives_again(self, back: int, late_s: float, then_s: float) -> None:
        said = self.world.network.said
        if said:
            self.world.network.copy(said[-min(back, len(said))], late_s)
        self.world.run(then_s)

    # -- jobs ----------------------------------------------------------------------------------------------------

    @rule(job=jobs, for_s=st.sampled_from([2.0, 25.0, 95.0]), then_s=then_s)
    def a_process_is_frozen(self, job: int, for_s: float, then_s: float) -> None:
        self.world.freeze(self._newest(job), for_s)
        self.world.run(then_s)

    @rule(job=jobs, back_after_s=st.sampled_from([1.0, 40.0, 150.0]), restore=st.booleans(), then_s=then_s)
    def a_process_dies(self, job: int, back_after_s: float, restore: bool, then_s: float) -> None:
        """And comes back later, perhaps reading its checkpoint first."""
        self.world.kill(self._newest(job), back_after_s=back_after_s, restore=restore)
        self.world.run(then_s)

    @rule(job=jobs, cut_for_s=st.sampled_from([0.0, 40.0, 200.0]), then_s=then_s)
    def an_attempt_starts_beside_the_living_one(self, job: int, cut_for_s: float, then_s: float) -> None:
        self.world.start_beside(self._newest(job), cut_for_s)
        self.world.run(then_s)

    @rule(job=jobs, back_after_s=st.sampled_from([10.0, 100.0]), then_s=then_s)
    def a_job_finishes(self, job: int, back_after_s: float, then_s: float) -> None:
        self.world.finish(self._newest(job), back_after_s=back_after_s)
        self.world.run(then_s)

    @rule(job=jobs, for_s=st.sampled_from([10.0, 60.0, 200.0]), then_s=then_s)
    def a_writer_hangs(self, job: int, for_s: float, then_s: float) -> None:
        self.world.hang(self._newest(job), for_s)
        self.world.run(then_s)

    @rule(
        some=st.sets(jobs, min_size=1, max_size=3), in_s=st.sampled_from([10.0, 30.0, 120.0]), then_s=then_s
    )
    def ends_are_announced(self, some: set[int], in_s: float, then_s: float) -> None:
        """Notices: these jobs ask for an urgent save, and are killed in a while."""
        for number in sorted(some):
            self.world.announce_end(self._newest(number), in_s)
        self.world.run(then_s)

    @rule(share=st.sampled_from([0.0, 0.05, 0.5]), for_s=st.sampled_from([10.0, 60.0]), then_s=then_s)
    def the_storage_slows_down(self, share: float, for_s: float, then_s: float) -> None:
        self.world.slow_down(share, for_s)
        self.world.run(then_s)

    # -- the coordinator -----------------------------------------------------------------------------------------

    @rule(
        down_s=st.sampled_from([0.3, 10.0, 70.0]),
        kept_last=st.sampled_from([None, True, False]),
        then_s=then_s,
    )
    def the_coordinator_crashes(self, down_s: float, kept_last: bool | None, then_s: float) -> None:
        """Now, or between its next decision and the commit, or between the commit and the replies."""
        self.world.crash(down_s, kept_last=kept_last)
        self.world.run(then_s)

    @rule(down_s=st.sampled_from([0.3, 10.0, 70.0]), then_s=then_s)
    def the_coordinator_loses_its_memory(self, down_s: float, then_s: float) -> None:
        self.world.crash(down_s, memory=False)
        self.world.run(then_s)

    @rule(
        after_s=st.sampled_from([0.5, 5.0, 40.0]),
        clock_offset_s=st.sampled_from([-900.0, 0.0, 31.0, 1e6]),
        known_within_s=st.sampled_from([None, 0.01, 0.5]),
        num_lost=st.sampled_from([0, 0, 1, 20]),
        deposed_for_s=st.sampled_from([0.0, 5.0, 60.0]),
        then_s=then_s,
    )
    def another_leader_takes_over(
        self,
        after_s: float,
        clock_offset_s: float,
        known_within_s: float | None,
        num_lost: int,
        deposed_for_s: float,
        then_s: float,
    ) -> None:
        """With another clock; perhaps without the newest commits, perhaps while the old one still talks to some."""
        self.world.fail_over(
            after_s,
            clock_offset_s=clock_offset_s,
            known_within_s=known_within_s,
            num_lost=num_lost,
            deposed_for_s=deposed_for_s,
        )
        self.world.run(then_s)

    @rule(for_s=st.sampled_from([3.0, 20.0, 100.0]), then_s=then_s)
    def the_coordinators_machine_is_suspended(self, for_s: float, then_s: float) -> None:
        """Nothing is decided meanwhile; its clock jumps."""
        self.world.suspend(for_s)
        self.world.run(then_s)

    @rule(
        capacity=st.sampled_from([0, 30, 400, 1000, 2000]), down_s=st.sampled_from([0.3, 20.0]), then_s=then_s
    )
    def the_capacity_changes(self, capacity: int, down_s: float, then_s: float) -> None:
        self.world.reconfigure(replace(self.world.config, capacity_bytes_per_s=capacity))
        self.world.crash(down_s)
        self.world.run(then_s)

    @rule(ttl_s=st.sampled_from([20.0, 30.0, 45.0, 60.0]), down_s=st.sampled_from([0.3, 20.0]), then_s=then_s)
    def the_lease_times_change(self, ttl_s: float, down_s: float, then_s: float) -> None:
        self.world.reconfigure(replace(self.world.config, ttl_s=ttl_s))
        self.world.crash(down_s)
        self.world.run(then_s)
