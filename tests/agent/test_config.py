"""Settings of the agent: argument, then variable, then default; bad values are named."""

from dataclasses import fields, replace

import pytest

from rampmeter.config import Beliefs, Bounds, Names, job_settings
from rampmeter.core.errors import ConfigError


def settings(environment=None, **given):
    """Each argument goes where the call of a job puts it."""
    parts = []
    for part in (Names, Beliefs, Bounds):
        known = {field.name for field in fields(part)} & set(given)
        parts.append(part(**{name: given.pop(name) for name in known}))
    assert not given
    return job_settings(replace(parts[0], default="run 7/x"), *parts[1:], environment=environment or {})


def test_argument_beats_variable_beats_default():
    """In this order."""
    env = {"RAMPMETER_POOL": "lustre", "RAMPMETER_JOB": "from-env"}
    assert settings(env, pool="nfs").pool == "nfs"
    assert settings(env).pool == "lustre"
    assert (settings().pool, settings().name) == ("default", "run-7-x")


def test_off_makes_a_local_checkpointer_whatever_the_url():
    """RAMPMETER=off is the kill switch."""
    assert settings({"RAMPMETER": "off"}, coordinator="http://host:8000").coordinator is None


def test_a_notice_is_two_minutes_unless_somebody_knows_better():
    """The argument, then the variable, then 120 s."""
    env = {"RAMPMETER_NOTICE_S": "30"}
    assert settings(env, notice_s=45).notice_s == 45.0
    assert settings(env).notice_s == 30.0
    assert (settings().notice_s, settings({"RAMPMETER_NOTICE_S": ""}).notice_s) == (120.0, 120.0)


def test_a_tenant_is_told_or_there_is_none():
    """Argument, then variable; an empty one is none."""
    env = {"RAMPMETER_TENANT": "red"}
    assert settings(env, tenant="blue").tenant == "blue"
    assert settings(env).tenant == "red"
    assert (settings().tenant, settings({"RAMPMETER_TENANT": ""}).tenant) == (None, None)


def test_a_rank_has_one_gpu_unless_told_otherwise():
    """num_gpus is of the whole job."""
    assert job_settings(Names(), Beliefs(), Bounds(), num_ranks=4, environment={}).num_gpus == 4
    assert job_settings(Names(), Beliefs(num_gpus=2), Bounds(), num_ranks=4, environment={}).num_gpus == 2


def test_checkpoints_are_for_the_failure_of_a_node_unless_told_otherwise():
    """`site` where another tier is there for single nodes."""
    assert (settings().survives, settings(survives="site").survives) == ("node", "site")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"job": "a b"}, "job"),
        ({"pool": "x" * 129}, "pool"),
        ({"coordinator": "host:8000"}, "coordinator"),
        ({"coordinator": "http://"}, "coordinator"),
        ({"coordinator": "http://host:99999"}, "coordinator"),
        ({"num_gpus": 0}, "num_gpus"),
        ({"num_gpus": True}, "num_gpus"),
        ({"mtbf_s": float("nan")}, "mtbf_s"),
        ({"restart_s": -1.0}, "restart_s"),
        ({"interval_min_s": 0.0}, "interval_min_s"),
        ({"interval_max_s": float("inf")}, "interval_max_s"),
        ({"interval_min_s": 9.0, "interval_max_s": 8.0}, "interval_min_s"),
        ({"environment": {"RAMPMETER": "maybe"}}, "RAMPMETER"),
        ({"tenant": "a b"}, "tenant"),
        ({"environment": {"RAMPMETER_TENANT": "-x"}}, "RAMPMETER_TENANT"),
        ({"notice_s": 0.0}, "notice_s"),
        ({"survives": "rack"}, "survives must be `node` or `site`"),
        ({"survives": None}, "survives"),
        ({"survives": ["site"]}, "survives"),
        ({"environment": {"RAMPMETER_NOTICE_S": "2min"}}, "RAMPMETER_NOTICE_S"),
        ({"environment": {"RAMPMETER_NOTICE_S": "nan"}}, "RAMPMETER_NOTICE_S"),
        ({"environment": {"RAMPMETER_NOTICE_S": "-1"}}, "RAMPMETER_NOTICE_S"),
    ],
)
def test_bad_value_names_itself(given, named):
    """ConfigError says which argument or variable."""
    with pytest.raises(ConfigError, match=named):
        settings(**given)
