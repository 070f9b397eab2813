"""Frozen copies of a pool's state for people and metrics. Changes nothing."""

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import bidding, counting, estimates, losses, planning, restarts
from rampmeter_coordinator.model.goodput import unpacked
from rampmeter_coordinator.model.history import History
from rampmeter_coordinator.model.losses import PoolLosses
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState
from rampmeter_coordinator.model.views import Estimate, Figures, JobView, LeaseView, PoolView, RestartView


class Viewing:
    """Looks at one pool."""

    def __init__(self, state: PoolState, rates: Rates) -> None:
        self._state = state
        self._rates = rates
        self._losses: PoolLosses | None = None
        self._look_again_s = 0.0

    def pool(self, price: float, live_price: float, now_s: float) -> PoolView:
        """The pool at a glance."""
        state = self._state
        leases = [job.lease for job in state.live.values() if job.lease is not None]
        active = [job for job in state.jobs.values() if not job.finished]
        in_demand = [job for job in active if not planning.is_lost(job, now_s)]
        lost, account = self._losses_of(in_demand, now_s), state.account
        per_failure = state.failures.gpu_hours_per_failure
        return PoolView(
            name=state.config.name,
            capacity_bytes_per_s=state.config.capacity_bytes_per_s,
            budget_bytes_per_s=state.budget(Kind.WRITE),
            read_budget_bytes_per_s=0 if state.config.shared_reads else state.budget(Kind.READ),
            read_granted_bytes_per_s=self._granted(Kind.READ, now_s),
            granted_bytes_per_s=self._granted(Kind.WRITE, now_s),
            counted_bytes_per_s=state.counted(Kind.WRITE, now_s),
            achieved_bytes_per_s=sum(lease.achieved_bytes_per_s for lease in leases),
            price_gpu_s_per_byte=price,
            live_price_gpu_s_per_byte=live_price,
            shadow_bytes_per_s=sum(
                counting.leased(j, now_s) for j in state.live.values() if not state.enforces(j)
            ),
            would_bytes_per_s=sum(self._would(now_s).values()),
            demand_bytes_per_s=sum((job.num_bytes or 0) / job.plan.interval_s for job in in_demand),
            num_jobs=len(active),
            num_waiting=sum(counting.waits_since(job, now_s) is not None for job in active),
            num_leases=len(leases),
            num_silent=sum(counting.is_silent(job, state.config, now_s) for job in active),
            in_grace=state.in_grace,
            grace_left_s=max(0.0, state.grace_until_s - now_s) if state.in_grace else 0.0,
            gpu_hours_per_failure=per_failure,
            failures_per_day=24.0 * lost.num_gpus / per_failure,
            mtbf_s=lost.mtbf_s,
            restart_s=lost.restart_s,
            account_gpu_s=account,
            goodput=losses.measured(account),
            modelled=lost.modelled,
            uncoordinated=lost.uncoordinated,
            aligned=lost.aligned,
        )

    def _losses_of(self, jobs: list[Job], now_s: float) -> PoolLosses:
        """By the model; for a while the same answer, since it costs more than all other figures together."""
        if not self._losses or not self._losses.num_gpus or now_s >= self._look_again_s:
            self._losses = losses.of_pool(jobs, self._state.config.capacity_bytes_per_s)
            self._look_again_s = now_s + max(losses.GOOD_FOR_S, losses.GOOD_FOR_S_PER_JOB * len(jobs))
        return self._losses

    def _granted(self, lane: Kind, now_s: float) -> int:
        return sum(counting.leased(job, now_s) for job in self._state.holders(lane))

    def _would(self, now_s: float) -> dict[str, int]:
        """Shadow mode: the rates that leases would have if everybody were held to the budget."""
        if self._state.config.enforced_share >= 1.0:
            return {}
        found: dict[str, int] = {}
        for lane in self._state.lanes:
            found |= self._rates.would(lane, now_s)
        return found

    def jobs(self, live_price: float, now_s: float) -> list[JobView]:
        """Every job."""
        return [self._job(job, live_price, now_s) for job in self._state.jobs.values()]

    def _job(self, job: Job, live_price: float, now_s: float) -> JobView:
        waits_since_s = counting.waits_since(job, now_s)
        heard_s = job.registered_s if job.contact_s is None else job.contact_s
        history = job.history or History(credited_s=job.registered_s)
        account = unpacked(history.account)
        return JobView(
            job_uid=job.uid,
            name=job.name,
            attempt=job.attempt,
            num_gpus=job.num_gpus,
            num_bytes=job.num_bytes,
            tenant=job.terms.tenant,
            enforced=self._state.enforces(job),
            plan=planning.told(job.plan),
            mtbf_s=planning.load_of(job).mtbf_s,
            num_failures=history.num_failures,
            num_interruptions=history.num_interruptions,
            restart=self._restart(job, history),
            account_s=account,
            goodput=losses.measured(account),
            modelled=losses.planned(job),
            contact_age_s=max(0.0, now_s - heard_s),
            counted_bytes_per_s=counting.counted(job, self._state.config, now_s),
            waiting_for_s=None if waits_since_s is None else now_s - waits_since_s,
            wait_reason=job.waiter.reason if job.waiter else None,
            bid_gpu_s_per_byte=bidding.bid_of(job, job.waiter, now_s) if job.waiter else None,
            live_price_gpu_s_per_byte=live_price,
            step=job.step,
            committed_step=job.committed_step,
            commit_age_s=None if job.snapshot_s is None else now_s - job.snapshot_s,
            unsaved_s=now_s - (job.registered_s if job.snapshot_s is None else job.snapshot_s),
            lost=planning.is_lost(job, now_s),
            stall_s=job.stall_s,
            write_s=job.known.write_s,
            num_committed=job.known.num_committed,
            num_failed=job.mishaps.num_failed,
            last_failure=job.mishaps.last_failure,
            num_skipped=job.mishaps.num_skipped,
            num_ungoverned=job.mishaps.num_ungoverned,
            num_absurd=job.known.num_absurd,
            figures=_figures(job),
            finished=job.finished,
        )

    @staticmethod
    def _restart(job: Job, history: History) -> RestartView:
        return RestartView(
            restart_s=restarts.restart_s(job),
            down_s=history.down_s,
            num_down=history.num_down,
            load_s=history.load_s,
            num_load=history.num_load,
            warm_up_s=history.warm_up_s,
            num_warm_up=history.num_warm_up,
        )

    def leases(self, now_s: float) -> list[LeaseView]:
        """Every live lease."""
        would = self._would(now_s)
        return [self._lease(job, would.get(job.uid), now_s) for job in self._state.live.values()]

    def _lease(self, job: Job, would: int | None, now_s: float) -> LeaseView:
        lease = job.lease
        assert lease is not None
        rate = counting.leased(job, now_s)
        return LeaseView(
            job_uid=job.uid,
            job=job.name,
            fence=lease.fence,
            kind=lease.kind,
            background=lease.background,
            state=lease.state,
            bytes_per_s=rate,
            would_bytes_per_s=rate if would is None else would,
            reason=lease.reason,
            expires_in_s=max(0.0, counting.lease_until(job) - now_s),
            age_s=now_s - lease.granted_s,
            done_bytes=lease.done_bytes,
            num_bytes=lease.num_bytes,
        )


def _figures(job: Job) -> Figures:
    known = job.known
    return Figures(
        num_bytes=Estimate(value=job.num_bytes, num_samples=known.of_bytes),
        stall_s=Estimate(value=job.stall_s, num_samples=known.of_stall),
        write_s=Estimate(value=known.write_s, num_samples=known.of_write),
        at_work_s=Estimate(value=known.at_work_s, num_samples=known.of_write),
        lead_s=Estimate(value=known.lead_s, num_samples=known.of_lead),
        eps=Estimate(value=estimates.eps_of(job), num_samples=known.of_eps),
        max_bytes_per_s=Estimate(value=known.max_bytes_per_s, num_samples=known.of_rate),
    )
