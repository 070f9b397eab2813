"""A state of 16 MiB, which takes seconds to write at a few MiB/s.

Apart from `hired`: to make it torch starts threads, which whoever forks after that import would wait for in vain.
"""

import torch

LARGE = {"t": torch.ones(4 * 1024 * 1024)}
