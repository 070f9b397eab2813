"""The texts of `rampmeter plan` under tests/planner/golden: each begins with its command. Run it to write them anew."""

import contextlib
import io
import shlex
from pathlib import Path

from rampmeter import cli

GOLDEN = Path(__file__).parents[1] / "planner" / "golden"
_PROMPT = "$ rampmeter "
_CONTINUED = " \\\n    "


def text_again(path: Path) -> str:
    """What the command in this file says today, with the command before it."""
    command = path.read_text(encoding="utf-8").split("\n\n")[0]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.main(shlex.split(command.removeprefix(_PROMPT).replace(_CONTINUED, " ")))
    assert code == 0, f"{path.name}: exit code {code}"
    return f"{command}\n\n{said.getvalue()}"


if __name__ == "__main__":
    for file in sorted(GOLDEN.glob("*.txt")):
        file.write_text(text_again(file), encoding="utf-8")
        print(f"wrote {file.name}")
