"""Settings of the agent: argument, then variable, then default; bad values are named."""

import pytest

from rampmeter.config import job_settings
from rampmeter.core.errors import ConfigError

GIVEN = {"job": None, "pool": None, "coordinator": None, "num_gpus": None, "keep": 3}


def settings(environment=None, **more):
    return job_settings(**(GIVEN | more), environment=environment or {}, default_name="run 7/x")


def test_argument_beats_variable_beats_default():
    """In this order."""
    env = {"RAMPMETER_POOL": "lustre", "RAMPMETER_JOB": "from-env"}
    assert settings(env, pool="nfs").pool == "nfs"
    assert settings(env).pool == "lustre"
    assert (settings().pool, settings().name) == ("default", "run-7-x")


def test_off_makes_a_local_checkpointer_whatever_the_url():
    """RAMPMETER=off is the kill switch."""
    assert settings({"RAMPMETER": "off"}, coordinator="http://host:8000").coordinator is None


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
        ({"keep": 0}, "keep"),
        ({"keep": -1}, "keep"),
        ({"mtbf_s": float("nan")}, "mtbf_s"),
        ({"restart_s": -1.0}, "restart_s"),
        ({"interval_min_s": 0.0}, "interval_min_s"),
        ({"interval_max_s": float("inf")}, "interval_max_s"),
        ({"interval_min_s": 9.0, "interval_max_s": 8.0}, "interval_min_s"),
        ({"environment": {"RAMPMETER": "maybe"}}, "RAMPMETER"),
    ],
)
def test_bad_value_names_itself(given, named):
    """ConfigError says which argument or variable."""
    with pytest.raises(ConfigError, match=named):
        settings(**given)
