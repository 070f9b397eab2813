"""Log lines on stderr: text for people, or one JSON object a line for collectors. Times are RFC 3339 UTC."""

import json
import logging

from rampmeter.core.clock import wall_time


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{wall_time()} {record.levelname.lower()} {record.name}: {super().format(record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": wall_time(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logs(*, as_json: bool) -> None:
    """Send everything from level info on to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if as_json else _Text())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each forwarded request helps nobody
