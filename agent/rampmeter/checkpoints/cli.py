"""`rampmeter checkpoints`: looks after what stands under a root, on any machine that sees it.

Exit codes: 0 fine, 1 something is wrong with a checkpoint or was not done, 2 a wrong call or a refusal, 130 stopped.
"""

import argparse

from rampmeter.checkpoints.adopting import ADOPT
from rampmeter.checkpoints.looking import LS, SHOW
from rampmeter.checkpoints.pinning import PIN, UNPIN
from rampmeter.checkpoints.removing import PRUNE, RM
from rampmeter.checkpoints.verb import WRONG, say
from rampmeter.checkpoints.verifying import VERIFY

_INTERRUPTED = 130
_VERBS = (LS, SHOW, VERIFY, PIN, UNPIN, RM, PRUNE, ADOPT)

_HELP = """\
Look after the checkpoints under a root: list, verify, show, pin, remove, adopt.
Needs no torch; may run anywhere, beside the job and beside itself.

Examples:
  rampmeter checkpoints ls /lustre/run7
  rampmeter checkpoints verify /lustre/run7 newest
  rampmeter checkpoints prune /lustre/run7 --dry-run

`rampmeter checkpoints VERB --help` explains a verb. Exit codes: 0 fine,
1 something is wrong with a checkpoint or was not done, 2 a wrong call or a
refusal, 130 stopped.
"""


class CheckpointsCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "checkpoints"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(metavar="VERB", required=True)
        for verb in _VERBS:
            own = verbs.add_parser(
                verb.name,
                help=verb.summary,
                description=verb.help,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            verb.add_arguments(own)
            own.set_defaults(run=verb.run)

    def run(self, args: argparse.Namespace) -> int:
        try:
            code: int = args.run(args)
        except KeyboardInterrupt:
            say("stopped; a removal that has begun is finished by the next `prune` or by the job")
            return _INTERRUPTED
        except OSError as error:
            say(f"{error.strerror}: {error.filename}")
            return WRONG
        return code
