"""The picture is made; what it looks like was looked at."""

from rampmeter_coordinator.demo.figures import Act
from rampmeter_coordinator.demo.history import CoordinatorBack, CoordinatorKilled, Killed, Restored
from rampmeter_coordinator.demo.picture import draw
from rampmeter_coordinator.demo.scenario import scenario
from support.histories import save


def test_a_png_of_both_acts_is_written(tmp_path):
    """Kills of a job and of the coordinator included, and a job that never saved."""
    herd = Act(metered=False, begin_s=0.0, end_s=10.0, records=save("demo-1", 2.0, 6.0, num_bytes=10**8))
    incidents = [
        Killed(at_s=4.0, job="demo-3", life=1),
        Restored(at_s=5.0, job="demo-3", life=2, step=2),
        CoordinatorKilled(at_s=5.0, job="coordinator", life=1),
        CoordinatorBack(at_s=7.5, job="coordinator", life=2),
    ]
    metered = Act(
        metered=True, begin_s=0.0, end_s=10.0, records=save("demo-1", 2.0, 3.0, durable=False) + incidents
    )
    path = tmp_path / "demo.png"
    draw(path, scenario(act_s=10.0, seed=0), herd, metered)
    assert path.read_bytes().startswith(b"\x89PNG")
