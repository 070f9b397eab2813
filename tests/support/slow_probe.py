"""`rampmeter probe` on a storage that is slow enough to be interrupted: python slow_probe.py DIR."""

import argparse
import sys
import threading

from rampmeter.probing.cli import ProbeCommand
from rampmeter.probing.files import Files


class SlowFiles(Files):
    """A chunk takes 50 ms."""

    def write(self, descriptor, data):
        threading.Event().wait(0.05)
        return super().write(descriptor, data)


if __name__ == "__main__":
    command = ProbeCommand(SlowFiles())
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    sys.exit(
        command.run(parser.parse_args([*sys.argv[1:], "--size", "1GiB", "--seconds", "60", "--writers", "2"]))
    )
