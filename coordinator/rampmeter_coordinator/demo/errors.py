"""What can go wrong with the demo itself, as opposed to what it shows."""

from rampmeter.core.errors import RampmeterError


class DemoFailed(RampmeterError):
    """A process of the demo did not do its part; the message says which and ends with what it said last."""
