"""How long a call takes, from looks at a counter."""

from rampmeter.ranks.pace import Pace


def test_the_pace_is_that_of_the_newest_quarter_of_a_second() -> None:
    """Not known before; follows a change; a call that takes longer than the looks lie apart counts whole."""
    pace = Pace(10.0)
    pace.look(10.1, 10)
    assert pace.step_s is None
    pace.look(10.5, 50)
    assert pace.step_s == 0.01
    pace.look(11.5, 51)
    assert pace.step_s == 1.0
    pace.look(12.5, 51)
    pace.look(15.5, 52)
    assert pace.step_s == 4.0
