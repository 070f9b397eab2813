"""The loss over the interval: figures, bars and picture."""

import os
import subprocess
import sys

import pytest

from rampmeter import cli

LLAMA = "--params 405B --bytes-per-param 16 --bandwidth 2TB/s --mtbf 3.1h --restart 10min"
CODE = "import sys; from rampmeter import cli; sys.exit(cli.main(sys.argv[1:]))"
IN_A_PROCESS = [sys.executable, "-c", CODE, "plan", *LLAMA.split(), "--sweep"]


def test_the_best_interval_is_the_lowest_point(plan):
    """From an eighth to eight times the best one, in even ratios."""
    sweep = plan(f"{LLAMA} --sweep")["sweep"]
    (best,) = [point for point in sweep if point["note"] == "best"]
    assert best["waste"]["total"] == min(point["waste"]["total"] for point in sweep)
    assert sweep[0]["interval_s"] == pytest.approx(best["interval_s"] / 8)
    assert sweep[-1]["interval_s"] == pytest.approx(best["interval_s"] * 8)


def test_the_asked_interval_is_in_its_place(plan):
    """Also far from the others."""
    sweep = plan(f"{LLAMA} --checkpoint-every 2h --sweep")["sweep"]
    assert [point["note"] for point in sweep if point["note"]] == ["best", "asked"]
    assert [point["interval_s"] for point in sweep] == sorted(point["interval_s"] for point in sweep)
    assert sweep[-1]["interval_s"] == 7_200.0


def test_bars_are_as_long_as_the_loss(say):
    """Rounded ends, so that no bar is longer or shorter than its sum by more than half a block."""
    bars = [
        line for line in say(f"{LLAMA} --sweep").splitlines() if "%" in line and ("█" in line or "▒" in line)
    ]
    bars = [line for line in bars if "writing" not in line]
    lost = [float(line.split("%")[0].split()[-1]) for line in bars]
    lengths = [sum(line.count(block) for block in "█▒░") for line in bars]
    assert max(lengths) == 40
    for share, length in zip(lost, lengths, strict=True):
        assert length == pytest.approx(40 * share / max(lost), abs=0.75)


def test_a_loss_of_more_than_everything_ends_at_the_edge(say):
    """Bars stop where nothing is left."""
    text = say("--stall 10min --mtbf 10min --restart 1h --sweep")
    assert max(sum(line.count(block) for block in "█▒░") for line in text.splitlines()[1:]) <= 40


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_blocks_gets_other_signs(encoding):
    """The text is the same otherwise."""
    done = subprocess.run(
        IN_A_PROCESS,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert "# writing  = redoing  . restarting" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error():
    """`rampmeter plan ... | head -1` ends quietly."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(IN_A_PROCESS, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_picture_is_a_png(tmp_path, say):
    """With matplotlib, which the demo extra brings."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "loss.png"
    say(f"{LLAMA} --checkpoint-every 2h --png {path}")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_named(tmp_path, capsys):
    """Exit code 2 and the option."""
    pytest.importorskip("matplotlib")
    assert cli.main(["plan", *LLAMA.split(), "--png", str(tmp_path / "no" / "where.png")]) == 2
    assert "option --png: cannot write" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    """What to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["plan", *LLAMA.split(), "--png", str(tmp_path / "loss.png")]) == 2
    assert "pip install 'rampmeter[demo]'" in capsys.readouterr().err
