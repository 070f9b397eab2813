"""The process around the application: socket, signals, loop, and a shutdown that answers everybody first.

uvicorn's defaults that hurt here: it closes idle connections after 5 s, just when a client with a 15 s heartbeat uses
them again; it waits for held requests before it tells the application to stop; and it dies by the signal that asked it
to stop, where a supervisor wants exit code 0.
"""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.api.wire import WireProtocol
from rampmeter_coordinator.app import create_app
from rampmeter_coordinator.settings import EMBEDDED_STORES, Settings

_KEEP_ALIVE_S = 75
_GRACEFUL_S = 4
_BACKLOG = 4096
_MAX_FILES = 1 << 20

log = logging.getLogger(__name__)

OnReady = Callable[[str], None]
"""Told the URL once requests are answered."""


async def serve(settings: Settings, on_ready: OnReady) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError, StoreUnavailable or Fenced if it cannot start."""
    raise_file_limit()
    listener = _listen(settings.host, settings.port)
    with contextlib.closing(listener):
        app = create_app(settings, url=_advertised(settings, listener))
        async with app.router.lifespan_context(app):
            config = uvicorn.Config(
                app,
                http=WireProtocol,
                lifespan="off",
                access_log=False,
                log_config=None,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACEFUL_S,
                server_header=False,
                proxy_headers=False,
            )
            await _Server(config, app, lambda: on_ready(_url(listener))).serve(sockets=[listener])


def raise_file_limit() -> None:
    """Every held request is an open file; the soft limit of 1024 that many systems give is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.state.replica.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host {host} cannot be used: {error.strerror}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"host {host}, port {port} cannot be listened on: {error.strerror}") from None
    return listener


def _advertised(settings: Settings, listener: socket.socket) -> str:
    """Where other replicas reach this one: "" if that cannot be told from the address it listens on."""
    if settings.advertise_url is not None:
        return settings.advertise_url
    if ip_address(listener.getsockname()[0]).is_unspecified:
        if settings.store not in EMBEDDED_STORES:
            log.warning(
                "advertise_url is not set: other replicas cannot send requests here while this one leads"
            )
        return ""
    return _url(listener)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
