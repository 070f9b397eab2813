"""What all tests share: the `debian` marker."""

import shutil

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`debian(package, binary=...)`: skip, with the command to install it, where that program is missing."""
    for marker in item.iter_markers("debian"):
        (package,) = marker.args
        program = marker.kwargs.get("binary", package)
        if shutil.which(program) is None:
            pytest.skip(
                f"{program} is missing: apt-get install -y --no-install-recommends {package} (as root)"
            )
