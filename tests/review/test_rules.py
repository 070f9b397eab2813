"""Every rule of a review: the change to a good plan that breaks it, and the one that comes near and does not."""

import pytest

from rampmeter.review.finding import Severity
from rampmeter.review.rules import RULES
from support.plans import flaws, reviewed

SYNC = {"mode": "synchronous", "stall": None}
SLOW = {"write_bandwidth": "5GB/s"}
PARTS = ["weights", "master_weights", "optimizer", "step", "scheduler", "rng"]

# rule, severity, what breaks it, what it says
BROKEN = [
    (
        "commit_order",
        "critical",
        {"commit": {"order": ["pointer", "shards"]}},
        "pointer is set before the data",
    ),
    ("commit_order", "critical", {"commit": {"order": ["shards", "pointer"]}}, "does not wait for all ranks"),
    (
        "commit_order",
        "critical",
        {"commit": {"order": ["shards", "pointer", "all_ranks_done"]}},
        "does not wait",
    ),
    (
        "commit_order",
        "critical",
        {"commit": {"order": ["manifest", "shards", "all_ranks_done"]}},
        "manifest is set before",
    ),
    (
        "commit_order",
        "critical",
        {"commit": {"order": ["shards", "all_ranks_done", "pointer", "manifest"]}},
        "before the manifest",
    ),
    (
        "commit_order",
        "critical",
        {"commit": {"order": ["shards", "all_ranks_done"]}},
        "whole checkpoint from a partial",
    ),
    ("commit_order", "critical", {"commit": {"order": []}}, "whole checkpoint from a partial"),
    ("pointer_update", "high", {"commit": {"pointer_update": "in_place"}}, "in place"),
    ("overwritten", "critical", {"commit": {"directory": "reused"}}, "over an older one"),
    ("snapshot", "critical", {"schedule": {"snapshot_is_copy": False}}, "goes on to change"),
    ("state", "critical", {"size": {"saved": ["weights"]}}, "holds only weights"),
    ("state", "critical", {"size": {"saved": []}}, "lacks weights"),
    (
        "state",
        "critical",
        {"size": {"saved": [p for p in PARTS if p != "master_weights"]}},
        "lacks fp32 master weights",
    ),
    (
        "state",
        "high",
        {"size": {"saved": [p for p in PARTS if p != "scheduler"]}},
        "lacks learning-rate scheduler",
    ),
    ("state", "high", {"size": {"precision": "fp16_mixed"}}, "lacks gradient scaler"),
    ("state", "low", {"size": {"saved": PARTS[:-1]}}, "lacks random states"),
    ("size", "high", {"size": {"total": "140GB"}}, "980 GB, not 140 GB"),
    ("size", "high", {"size": {"total": "140GB", "saved": None}}, "980 GB, not 140 GB"),
    ("data_position", "critical", {"data": {"resume": "epoch_start"}}, "beginning of the epoch"),
    ("resume_test", "medium", {"data": {"tested": False}}, "same next batch"),
    ("stall", "high", {"schedule": SYNC | {"every": "2h"}, "storage": SLOW}, "stand still for 196 s"),
    (
        "stall",
        "medium",
        {"schedule": SYNC | {"every": "22min"}, "storage": {"write_bandwidth": "100GB/s"}},
        "9.8 s",
    ),
    ("no_progress", "critical", {"run": {"restart": "24h"}}, "hardly gets on"),
    ("no_progress", "critical", {"schedule": {"stall": "20min"}}, "hardly gets on"),
    ("restart", "medium", {"run": {"restart": "15min"}}, "Coming back takes 15 min"),
    ("restart", "high", {"run": {"restart": "2h"}}, "Coming back takes 2 h"),
    ("one_server", "medium", {"storage": {"servers": 1}}, "One server"),
    ("one_writer", "medium", {"storage": {"sharded": False}}, "One rank"),
    ("interval", "high", {"schedule": {"every": "2h"}}, "too rare: every 2 h, best is 15.5 min"),
    ("interval", "medium", {"schedule": {"every": "5min"}}, "too frequent: every 5 min, best is 15.5 min"),
    ("write_time", "high", {"storage": {"write_bandwidth": "1GB/s"}}, "the next is due after 15 min"),
    ("write_time", "medium", {"storage": {"write_bandwidth": "1.2GB/s"}}, "the next is due after 15 min"),
    ("queue", "medium", {"schedule": {"when_busy": "queue"}}, "queued"),
    ("herd", "high", {"schedule": {"phase": "start"}}, "41 jobs share the storage"),
    ("validation", "high", {"validation": {"checksums": False}}, "lacks checksums"),
    ("validation", "high", {"validation": {"checked_on_load": False}}, "lacks a check on load"),
    ("validation", "high", {"validation": {"restore_drills": False}}, "lacks restore drills"),
    ("validation", "medium", {"validation": {"finite_check": False}}, "lacks a check for NaN"),
    ("layout", "medium", {"restore": {"layout": "same"}}, "same 1,024-GPU layout"),
    ("layout", "high", {"restore": {"layout": "same", "spare_nodes": 0}}, "same 1,024-GPU layout"),
    ("layout", "high", {"restore": {"layout": "same", "spare_nodes": None}}, "same 1,024-GPU layout"),
    ("keeps_too_few", "high", {"retention": {"keep_last": 1, "one_per": None}}, "Only the newest"),
    ("keeps_too_few", "high", {"retention": {"keep_last": 0, "one_per": None}}, "No checkpoint is kept"),
    (
        "deletes_unverified",
        "high",
        {"retention": {"delete_only_after_verified": False}},
        "before a newer one",
    ),
    ("space", "high", {"storage": {"space": "33TB"}}, "full after 33 checkpoints"),
    (
        "keeps_everything",
        "medium",
        {
            "retention": {
                "keep": "all",
                "keep_last": None,
                "one_per": None,
                "delete_only_after_verified": None,
            },
            "storage": {"space": None},
        },
        "2,822 TB",
    ),
    ("monitoring", "medium", {"monitoring": {"alerts": []}}, "Nothing is monitored"),
    ("monitoring", "medium", {"monitoring": {"alerts": ["failed", "write_time"]}}, "stay away"),
    ("write_time_alert", "low", {"monitoring": {"alerts": ["age"]}}, "write time"),
]

# What comes near a rule and is no flaw.
SOUND = [
    {
        "commit": {"order": ["shards", "all_ranks_done", "pointer"]}
    },  # a manifest is one way, a pointer another
    {"commit": {"order": ["shards", "all_ranks_done", "manifest"]}},
    {
        "size": {"saved": [p for p in PARTS if p != "weights"], "total": "840GB"}
    },  # weights follow from master weights
    {"size": {"precision": "fp32", "saved": [p for p in PARTS if p != "master_weights"], "total": "840GB"}},
    {"size": {"optimizer": "sgd", "saved": [p for p in PARTS if p != "optimizer"], "total": "420GB"}},
    {"size": {"precision": "fp16_mixed", "saved": [*PARTS, "grad_scaler"]}},
    {"size": {"total": "950GB"}},  # rounded
    {"size": {"total": "1.2TB"}},  # a margin
    {"size": {"total": None}},
    {"schedule": SYNC, "storage": {"write_bandwidth": "200GB/s"}},  # 5 s
    {"schedule": {"every": "20min"}},
    {"schedule": {"phase": "start"}, "storage": {"other_jobs": 0}},
    {"schedule": {"phase": "coordinated"}},
    {"storage": {"write_bandwidth": "1.4GB/s"}},  # 700 s: 1.25 times that fits into 15 min
    {"storage": {"space": "34TB"}},  # 33 and the one being written
    {"retention": {"keep_last": 1}},  # and one a day
    {
        "run": {"gpus": 1, "nodes": None},
        "storage": {"sharded": False},
        "size": {"parameters": "70M", "total": None},
    },
    {
        "run": {"length": "1h"},
        "retention": {"keep": "all", "keep_last": None, "one_per": None, "delete_only_after_verified": None},
    },
    {"monitoring": {"alerts": ["missed", "write_time"]}},
    {"run": {"restart": "14min"}},
    {
        "run": {"mtbf": None, "mtbf_measured": None, "restart": "60h"}
    },  # only by a failure rate that nobody said
    {
        "run": {"gpus": 1, "nodes": 1},
        "commit": {"order": ["shards", "manifest", "pointer"]},  # one rank waits for no other
        "restore": {"layout": "same"},
        "size": {"parameters": "70M", "total": None},
    },
]


@pytest.mark.parametrize(("rule", "severity", "changes", "says"), BROKEN)
def test_what_is_wrong_is_found_alone(rule, severity, changes, says):
    """One change to a good plan gives the flaw that it is, in its severity, and no other."""
    found = flaws(**changes)
    assert list(found) == [rule]
    assert found[rule].severity == severity
    assert says in found[rule].what


@pytest.mark.parametrize("changes", SOUND)
def test_what_is_sound_is_left_alone(changes):
    """Near a rule is no flaw."""
    assert flaws(**changes) == {}


def test_every_rule_has_a_plan_that_breaks_it():
    """The table above leaves none out."""
    assert {rule for rule, *_ in BROKEN} == set(RULES)


SILENT = [
    (section, key)
    for section, keys in {
        "run": ["mtbf_measured", "restart", "parallelism"],
        "size": ["saved"],
        "schedule": ["mode", "stall", "snapshot_is_copy", "when_busy", "phase"],
        "storage": ["write_bandwidth", "other_jobs"],
        "commit": ["order", "pointer_update", "directory"],
        "data": ["resume", "tested"],
        "restore": ["layout", "spare_nodes"],
        "retention": ["milestones", "delete_only_after_verified"],
        "validation": ["checksums", "checked_on_load", "finite_check", "restore_drills"],
        "monitoring": ["alerts"],
    }.items()
    for key in keys
]


@pytest.mark.parametrize(("section", "key"), SILENT)
def test_silence_is_a_question_and_no_flaw(section, key):
    """What the plan does not say is asked, and never held against it."""
    result = reviewed(**{section: {key: None}})
    assert result.findings == ()
    assert len(result.questions) == 1


def test_what_the_interval_costs_is_no_fault_of_the_stall():
    """6 s of stall every 2 h: another interval saves 3 %, a shorter stall 0.1 % beside it."""
    short = {"mode": "synchronous", "stall": "6s"}
    assert list(flaws(schedule=short | {"every": "2h"})) == ["interval"]
    assert list(flaws(schedule=short | {"every": "1min"})) == ["interval"]
    unknown = {"mtbf": None, "mtbf_measured": None}
    assert list(flaws(schedule=short | {"every": "1min"}, run=unknown)) == ["stall"]


def test_a_stall_that_never_lets_training_go_on_has_another_interval():
    """Where only the interval is wrong, the advice is the interval."""
    assert "Write every 3 h 47 min" in flaws(schedule={"stall": "20min"})["no_progress"].change
    assert "Come back faster" in flaws(run={"restart": "24h"})["no_progress"].change


def test_the_lever_is_what_costs_most():
    """1.7 % of stalls beside 31 % of restarts is no lever."""
    spot = {"mtbf": "45min", "restart": "14min"}
    result = reviewed(run=spot, schedule={"stall": "1.5s", "every": "90s"})
    assert any("interval fits" in sentence for sentence in result.good)
    assert not any("is the lever" in sentence for sentence in result.good)
    cheap = reviewed(run=spot | {"restart": "30s"}, schedule={"stall": "1.5s", "every": "90s"})
    assert any("is the lever" in sentence for sentence in cheap.good)


def test_what_a_restart_costs():
    """2 h of 24 h are 8.3 % of 737,280 GPU-hours, by hand 61,440."""
    found = flaws(run={"restart": "2h"})["restart"]
    assert found.lost_gpu_hours == pytest.approx(61_440)
    assert "88.3 % of all that is lost" in found.why


def test_writes_that_do_not_fit_are_not_praised():
    """Checkpoints come as often as writes end, and the figures say so."""
    result = reviewed(storage={"write_bandwidth": "500MB/s"})
    assert "at best; all figures here use that" in result.findings[0].flaw.cost
    assert not any("interval fits" in sentence for sentence in result.good)


def test_figures_that_contradict_each_other_are_asked_about():
    """A stall much shorter than the write that it is, a total much larger than what is needed."""
    stall = reviewed(schedule={"mode": "synchronous", "stall": "6s"}, storage={"write_bandwidth": "50GB/s"})
    assert any("which is right?" in question for question in stall.questions)
    (total,) = reviewed(size={"total": "2TB"}).questions
    assert total.startswith("What else is in the 2 TB?")


def test_who_says_what_stays_has_said_that_not_all_does():
    """`keep` may be left out then; with nothing said it is a question."""
    assert reviewed(retention={"keep": None}) == reviewed()
    nothing = {"keep": None, "keep_last": None, "one_per": None, "delete_only_after_verified": None}
    assert reviewed(retention=nothing).questions == ("What is kept, and for how long?",)


def test_an_unknown_failure_rate_is_asked_for_and_judges_no_interval():
    """The interval depends on it, so no flaw follows from a figure that the reviewer made up."""
    result = reviewed(run={"mtbf": None, "mtbf_measured": None}, schedule={"every": "4h"})
    assert result.findings == ()
    assert "50,000 GPU-hours" in result.questions[0]


def test_a_good_plan_has_nothing_to_ask():
    """The documented plan answers everything."""
    result = reviewed()
    assert (result.findings, result.questions) == ((), ())


def test_the_worst_comes_first():
    """By severity, then what changes the run, then GPU-hours; the rest as in the table."""
    result = reviewed(
        schedule=SYNC | {"every": "2h"},
        storage=SLOW | {"space": "33TB"},
        validation={"checksums": False},
        monitoring={"alerts": []},
        data={"resume": "epoch_start"},
        size={"saved": PARTS[:-1]},
    )
    assert [finding.rule for finding in result.findings] == [
        "data_position",
        "validation",
        "stall",
        "space",
        "monitoring",
        "state",
    ]
    ranks = [finding.flaw.severity.rank for finding in result.findings]
    assert ranks == sorted(ranks)


def test_writes_that_do_not_fit_are_one_flaw_and_not_two():
    """Too frequent for its writes says it all; no second flaw on the interval."""
    found = flaws(schedule={"every": "5min"}, storage={"write_bandwidth": "1GB/s"})
    assert list(found) == ["write_time"]


def test_where_the_write_decides_the_best_interval_it_says_so():
    """1.25 times 980 s, and no square root."""
    why = flaws(schedule={"every": "4h"}, storage={"write_bandwidth": "1GB/s"})["interval"].why
    assert "1.25 times" in why
    assert "sqrt" not in why


def test_an_epoch_that_hardly_ever_ends_is_worked_out():
    """Chance e^-6 of 6 days without a failure a day; e^6 - 1 days to the first such stretch."""
    cost = flaws(data={"resume": "epoch_start"})["data_position"].cost
    assert "0.25 %" in cost
    assert "once in 402 d" in cost


@pytest.mark.parametrize(("epoch", "says"), [(None, "does not say"), ("30d", "none is ever finished")])
def test_an_epoch_of_unknown_or_hopeless_length_is_told_so(epoch, says):
    """No figure where none can be had."""
    assert says in flaws(data={"resume": "epoch_start", "epoch": epoch})["data_position"].cost


def test_costs_have_a_price_where_the_plan_gives_one():
    """GPU-hours at $2.40, terabytes at $20 a month."""
    kept = {"keep": "all", "keep_last": None, "one_per": None, "delete_only_after_verified": None}
    found = flaws(retention=kept, storage={"space": None}, restore={"layout": "same"})
    assert "$2,458" in found["layout"].cost
    assert "$55,801 a month" in found["keeps_everything"].cost


def test_a_full_storage_says_when():
    """33 checkpoints of 15 minutes."""
    kept = {"keep": "all", "keep_last": None, "one_per": None, "delete_only_after_verified": None}
    assert flaws(retention=kept, storage={"space": "33TB"})["space"].what.endswith("after 8 h 15 min")


def test_severities_are_ordered():
    """The comparison of --fail-on rests on it."""
    assert [
        severity.rank for severity in (Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW)
    ] == [0, 1, 2, 3]
