"""What the call of a checkpointer says reaches the parts that it is for."""

from pathlib import Path

import pytest
from torch.distributed.checkpoint import FileSystemWriter

from rampmeter import Checkpointer
from rampmeter.config import JobSettings
from rampmeter.core.messages import Survives
from rampmeter.daemon.mode import Mode
from rampmeter.retention import Keep


def test_every_argument_arrives_where_it_is_for(tmp_path: Path) -> None:
    """Each with a value of its own: none is dropped, none is taken for another."""
    config = {"lr": 0.1}
    ckpt = Checkpointer(
        tmp_path,
        pool="lustre",
        coordinator="http://host:8000",
        job="run7",
        tenant="red",
        num_gpus=7,
        keep=5,
        keep_days=6,
        milestone_steps=9,
        mtbf_s=11.0,
        restart_s=12.0,
        interval_min_s=13.0,
        interval_max_s=14.0,
        notice_s=15.0,
        survives="site",
        writer_class=FileSystemWriter,
        mode="thread",
        config=config,
        code_commit="abc",
        check_finite=False,
        max_norm_ratio=2.5,
    )
    assert ckpt._settings == JobSettings(
        name="run7",
        pool="lustre",
        coordinator="http://host:8000",
        tenant="red",
        num_gpus=7,
        mtbf_s=11.0,
        restart_s=12.0,
        interval_min_s=13.0,
        interval_max_s=14.0,
        notice_s=15.0,
        survives=Survives.SITE,
    )
    assert ckpt._keep == Keep(keep=5, keep_days=6, milestone_steps=9)
    assert ckpt._saver_for.keywords == {
        "writer_class": FileSystemWriter,
        "mode": Mode.THREAD,
        "config": config,
        "code_commit": "abc",
        "check_finite": False,
        "max_norm_ratio": 2.5,
    }


def test_a_job_that_nobody_names_is_called_like_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part of the path, also of a relative one."""
    monkeypatch.chdir(tmp_path)
    assert Checkpointer(tmp_path / "run8")._settings.name == "run8"
    assert Checkpointer("checkpoints/run9/")._settings.name == "run9"
