"""The final report, word for word."""

import io
from dataclasses import replace

from rich.console import Console

from rampmeter_coordinator.demo.figures import ActFigures, Figures
from rampmeter_coordinator.demo.observer import Lost
from rampmeter_coordinator.demo.report import report
from rampmeter_coordinator.demo.scenario import scenario

HERD = ActFigures(
    peak_writers=6,
    peak_over_capacity=6.0,
    peak_rights=0.0,
    p50_write_s=2.5,
    p95_write_s=3.5,
    lost=Lost(stall=0.019, rework=0.0325),
    num_commits=24,
    num_failed=0,
    step_s=0.4,
)
FOUND = Figures(
    herd=HERD,
    metered=replace(
        HERD,
        peak_writers=1,
        peak_over_capacity=0.8,
        peak_rights=0.8,
        p50_write_s=1.0,
        p95_write_s=1.25,
        lost=Lost(stall=0.02, rework=0.025),
    ),
    victim="demo-3",
    steps_lost=14,
    bit_exact=True,
    num_jobs=6,
    num_restored=6,
    steps_repeated_elsewhere=0,
    leases_broken=0,
    coordinator_down_s=2.5,
    step_s=0.4,
    act_s=36.0,
)
GOLDEN = """\
Side by side
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━┓
┃                                                  ┃ 1: the herd ┃ 2: metered ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━┩
│ peak concurrent writers                          │           6 │          1 │
│ peak offered load / capacity                     │        6.00 │       0.80 │
│ write time, median                               │      2.50 s │     1.00 s │
│ write time, 95th percentile                      │      3.50 s │     1.25 s │
│ checkpoints committed                            │          24 │         24 │
│ time lost, all together                          │       5.15% │      4.50% │
│     training stalled by checkpoints              │       1.90% │      2.00% │
│     work thrown away by failures                 │       3.25% │      2.50% │
├──────────────────────────────────────────────────┼─────────────┼────────────┤
│ demo-3 killed: work lost                         │             │   14 steps │
│ losses equal an uninterrupted run's, bit for bit │             │        yes │
│ newest checkpoints that restored intact          │             │     6 of 6 │
│ most allowed to all jobs together / capacity     │             │       0.80 │
│ coordinator killed: down for                     │             │      2.5 s │
│ steps that this cost the other jobs              │             │          0 │
│ leases that this cost                            │             │          0 │
└──────────────────────────────────────────────────┴─────────────┴────────────┘
"""


def _printed(found, width=80):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(report(found, scenario(act_s=36.0, seed=0)))
    return out.getvalue()


def test_the_table_reads_well_on_80_columns():
    """Both acts side by side, nothing cut off."""
    lines = [line.rstrip() for line in _printed(FOUND).splitlines()]
    assert lines[: GOLDEN.count("\n")] == GOLDEN.splitlines()


def test_the_report_says_how_time_lost_was_computed():
    """What is measured, what is modelled, and with which M."""
    text = " ".join(_printed(FOUND).split())
    assert "stalls are measured. Failures are modelled: each job fails once in M = 3 min" in text


def test_success_is_said_in_one_sentence():
    """The last line compares the acts."""
    text = " ".join(_printed(FOUND, width=200).split())
    assert text.endswith(
        "offered load 6.0 -> 0.8 times its capacity, 95 % of writes within 1.2 s instead of 3.5 s, "
        "time lost 5.2% -> 4.5%."
    )


def test_a_broken_promise_is_said_instead():
    """No praise beside a failure."""
    text = _printed(replace(FOUND, bit_exact=False), width=200)
    assert "FAILED: demo-3 resumed, but not with the losses" in text
    assert "The same jobs on the same storage" not in text


def test_a_busy_machine_is_owned_up_to():
    """Figures of a machine without room come with a warning."""
    assert "too busy" in _printed(replace(FOUND, herd=replace(HERD, step_s=0.7)))
