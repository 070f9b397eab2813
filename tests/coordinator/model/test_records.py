"""Records of jobs: they round trip, older forms of them can be read, and only what changed is told to the store."""

from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter.core.messages import Noted, Outcome, PlanReason
from rampmeter_coordinator.model.history import PRIOR
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.particulars import NO_MISHAPS, NO_TERMS, Mishaps, shared_terms
from rampmeter_coordinator.model.records import INFINITY, Job, Planned, SafeOffer
from support.desk import POOL, Desk, busy_desk
from support.lives import record

T = 1000.0


def test_every_record_round_trips() -> None:
    """Bytes to record to bytes gives the same bytes, and the same record but for what lives on a connection."""
    desk = busy_desk(T)
    for raw in desk.records.values():
        assert Job.from_bytes(raw).to_bytes() == raw
    for uid, job in desk.ledger._state.jobs.items():
        assert Job.from_bytes(desk.records[uid]) == durable(job)


def durable(job: Job) -> Job:
    """What a store keeps of a job."""
    passing = {"waiter": None, "held": None, "wake_s": INFINITY, "load": None, "planned_price": None}
    passing |= {"row": -1, "belief": PRIOR, "silent_bytes_per_s": 0, "issued_bytes_per_s": 0}
    return msgspec.structs.replace(job, **passing)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this type may hold, within the bounds of the wire."""
    if hint is float:
        return st.floats(min_value=1e-3, max_value=1e6)
    if hint is int:
        return st.integers(min_value=1, max_value=10**9)
    if hint in (str, bool):
        return st.text(max_size=40) if hint is str else st.booleans()
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    if isinstance(hint, type):
        return st.builds(hint, **{name: values_of(found) for name, found in get_type_hints(hint).items()})
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values_of(args[0])
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (list, tuple):
        return st.lists(values_of(args[0]), max_size=3).map(origin)
    return st.one_of(st.none() if arg is type(None) else values_of(arg) for arg in args)


@given(values_of(Job))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_a_record_holds_comes_back(job: Job) -> None:
    """Any job, with any lease, answer and history: written, read and written again it is the same, and unharmed."""
    before = repr(job)
    raw = job.to_bytes()
    assert repr(job) == before
    assert Job.from_bytes(raw) == durable(job)
    assert Job.from_bytes(raw).to_bytes() == raw


def test_unknown_keys_of_a_newer_writer_are_dropped() -> None:
    """A record with more in it can be read, also where the more is further inside."""
    for raw in busy_desk(T).records.values():
        record = msgspec.msgpack.decode(raw)
        record["from_the_future"] = 1
        record["plan"]["from_the_future"] = [1]
        assert Job.from_bytes(msgspec.msgpack.encode(record)).to_bytes() == raw


FIRST_FORM = (
    b'{"uid":"00000000000000000000000000000001","name":"job-1","attempt":1,"claim":"00000000000000000000000000000001",'
    b'"num_gpus":8,"registered_s":1000.0,"plan":{"number":1,"interval_s":84.85,"phase_offset_s":27.5,'
    b'"request_after_s":84.85,"safe_bytes_per_s":147,"safe_after_s":90.0,"safe_for_s":14400.0,"heartbeat_s":15.0,'
    b'"reason":"own_period","price_gpu_s_per_byte":0.0},"num_bytes":10000,"mtbf_s":3600.0,"synchronous":false,"seq":4,'
    b'"answered_seq":4,"answered_received_s":1010.0,"answered_s":1010.0,'
    b'"answer":{"seq":4,"held_s":0.0,"confirm":false,"answer":"noted"},"contact_s":1000.0,"safe_offers":'
    b'[{"seq":1,"number":1,"bytes_per_s":147,"after_s":90.0,"for_s":14400.0}],"old_shares":[],"learned":{"stall_s":1.0,'
    b'"num_samples":0},"step":1,"num_committed":0,"num_failed":0,"num_skipped":0,"num_ungoverned":0,'
    b'"num_not_ready":0,"ended_reason":"expired","asked_s":0.0,"finished":false}'
)


def test_records_of_the_first_release_can_be_read() -> None:
    """What the first coordinator wrote means the same today."""
    plan = Planned(
        number=1,
        interval_s=84.85,
        phase_offset_s=27.5,
        request_after_s=84.85,
        safe_bytes_per_s=147,
        safe_after_s=90.0,
        safe_for_s=14400.0,
        reason=PlanReason.OWN_PERIOD,
        price_gpu_s_per_byte=0.0,
    )
    assert Job.from_bytes(FIRST_FORM) == Job(
        uid=f"{1:032x}",
        name="job-1",
        attempt=1,
        claim=bytes(15) + b"\1",
        num_gpus=8,
        registered_s=1000.0,
        plan=plan,
        num_bytes=10_000,
        mtbf_s=3600.0,
        seq=4,
        answered_seq=4,
        answered_received_s=1010.0,
        answered_s=1010.0,
        answer=Noted(seq=4, held_s=0.0, confirm=False),
        contact_s=1000.0,
        safe_offers=(SafeOffer(seq=1, number=1, bytes_per_s=147, after_s=90.0, for_s=14400.0),),
        stall_s=1.0,
        step=1,
    )


def beside(raw: bytes) -> bytes:
    """A record as it was written before there were parts: what is in them stands beside everything else."""
    record = msgspec.msgpack.decode(raw)
    for part in ("terms", "mishaps", "turn"):
        record |= record.pop(part, {})
    known = record.get("evidence", {})
    record |= {
        name: known.pop(name) for name in ("num_committed", "write_s", "at_work_s", "lead_s") if name in known
    }
    return msgspec.msgpack.encode(record)


def test_records_without_parts_can_be_read_with_all_that_is_in_them() -> None:
    """What an older coordinator wrote of a job that has saved, has waited and was in trouble is not forgotten."""
    desk = busy_desk(T)
    job = desk.known(
        7, T, tenant="a", interval_min_s=3.0, interval_max_s=900.0, synchronous=True, write_s=7.0
    )
    job.heartbeat(T, num_failed=1, num_skipped=2, num_ungoverned=3)
    assert all(
        name in msgspec.msgpack.decode(beside(desk.records[job.uid])) for name in ("tenant", "num_skipped")
    )
    for raw in desk.records.values():
        assert Job.from_bytes(beside(raw)) == Job.from_bytes(raw)


def test_the_first_release_knew_write_times_too() -> None:
    """What it had learned, and what had happened, is read into the parts of today."""
    raw = FIRST_FORM.replace(b'"stall_s":1.0', b'"stall_s":1.0,"write_s":20.0,"at_work_s":15.0,"lead_s":2.0')
    raw = raw.replace(b'"num_committed":0,"num_failed":0', b'"num_committed":4,"num_failed":5')
    raw = raw.replace(b'"synchronous":false', b'"synchronous":true').replace(
        b'"asked_s":0.0', b'"asked_s":900.0'
    )
    job = Job.from_bytes(raw)
    assert (job.known.write_s, job.known.at_work_s, job.known.lead_s) == (20.0, 15.0, 2.0)
    assert (job.known.num_committed, job.mishaps.num_failed, job.terms.synchronous) == (4, 5, True)
    assert job.turn is not None
    assert job.turn.asked_s == 900.0


def test_parts_are_shared_or_absent_where_there_is_nothing_to_say() -> None:
    """Not a byte for what a job does not have, in memory or in the store; jobs that were set alike share what they
    share.
    """
    desk = Desk()
    plain, others = (
        record(desk, desk.known(1, T)),
        [record(desk, desk.known(n, T, tenant="a")) for n in (2, 3)],
    )
    assert (plain.terms, plain.mishaps, plain.turn, plain.evidence) == (NO_TERMS, NO_MISHAPS, None, None)
    assert plain.terms is NO_TERMS
    assert plain.mishaps is NO_MISHAPS
    assert not {"terms", "mishaps", "turn", "evidence"} & set(msgspec.msgpack.decode(desk.records[plain.uid]))
    assert others[0].terms is others[1].terms


def test_mishaps_are_over_where_a_heartbeat_counts_none() -> None:
    """As after a new attempt; the shared record stands in again."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T, num_failed=2)
    assert record(desk, job).mishaps == Mishaps(num_failed=2)
    job.heartbeat(T)
    assert record(desk, job).mishaps is NO_MISHAPS


def test_deleted_jobs_are_deleted_from_the_store() -> None:
    """A forgotten job's record is changed to None."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=1000, max_jobs=1))
    desk.known(1, T).finish(T)
    desk.known(2, T + 1)
    assert [int(uid, 16) for uid in desk.records] == [2]


def test_changes_are_told_once() -> None:
    """What was taken is not told again; only jobs that changed are."""
    desk = Desk()
    desk.known(1, T)
    job = desk.known(2, T)
    assert desk.ledger.take_changes().records == {}
    ledger: Ledger = desk.ledger
    ledger.apply(job.sent, T)
    assert set(ledger.take_changes().records) == {job.uid}


def test_an_aborted_save_is_remembered_as_nothing() -> None:
    """Only committed saves teach."""
    desk = Desk()
    job = desk.writer(1, T)
    job.release(T + 1, Outcome.ABORTED, done_bytes=5, stall_s=9.0, write_s=9.0)
    view = desk.ledger.job_views(T + 1)[0]
    assert (view.num_committed, view.write_s, view.num_bytes) == (0, None, 10_000)


def test_terms_of_another_kind_are_another_record() -> None:
    """A whole number of seconds is written as it was told, whatever another job told before."""
    whole: int = 5
    assert repr(shared_terms(None, 5.0, None, False)) != repr(shared_terms(None, whole, None, False))
