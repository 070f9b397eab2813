"""A pool of 100,000 jobs fits into 100 MB: watched with far fewer jobs, of which each takes as much."""

from benchmarks.ledger_memory import bytes_per_job

NUM_JOBS = 4096
"""The tables that grow in steps are about as full as with 100,000."""

MOST_BYTES = 1000


def test_a_job_takes_less_than_a_kibibyte() -> None:
    """Registered, planned and heard of once."""
    assert bytes_per_job(NUM_JOBS) <= MOST_BYTES
