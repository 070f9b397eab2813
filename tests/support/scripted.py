"""A real HTTP server on loopback that answers an agent as a test says, and keeps what was said."""

import contextlib
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rampmeter.core.decode import encode
from rampmeter.core.messages import Answer

Answers = Callable[[str, dict[str, Any]], Answer | None]


class Scripted(ThreadingHTTPServer):
    """Keeps what is said; answers with `answers`, with 503 where that is None."""

    daemon_threads = True

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.said: list[tuple[str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def slots(self) -> list[dict[str, Any]]:
        """The slot requests so far."""
        return [body for path, body in self.said if path == "slots"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.split("/v1/pools/default/")[1]
        assert isinstance(self.server, Scripted)
        self.server.said.append((path, body))
        answer = self.server.answers(path, body)
        content = b"{}" if answer is None else encode(answer)
        self.send_response(503 if answer is None else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the agent has dropped the request
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """The tests' output is theirs."""
