"""How long a slot is still held after a fault: an observer that asks the coordinator again and again."""

import threading
from collections.abc import Callable
from typing import Any

import httpx

from rampmeter.core.clock import SystemClock

LOOK_S = 0.01


class Release:
    """Of the lease that a job holds for writing when `is_fault` first holds."""

    def __init__(self, url: str, job: str, is_fault: Callable[[], object]) -> None:
        self._leases = httpx.Client(base_url=url, trust_env=False)
        self._job, self._is_fault = job, is_fault
        self._clock, self._took_s = SystemClock(), float("inf")
        self._over = threading.Event()
        self._held = self._fences()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def took_s(self, limit_s: float = 30.0) -> float:
        """From the fault to the first answer of the coordinator in which the lease is gone."""
        self._thread.join(limit_s)
        self._over.set()
        self._leases.close()
        return self._took_s

    def _look(self) -> None:
        while not self._is_fault():
            if self._over.wait(LOOK_S):
                return
            self._held = self._fences() or self._held  # gone already: it was released between two looks
        fault_s = self._clock.now()
        assert self._held, "no lease was held"
        while self._held[0] in self._fences():
            if self._over.wait(LOOK_S):
                return
        self._took_s = self._clock.now() - fault_s

    def _fences(self) -> list[dict[str, Any]]:
        leases = self._leases.get("/v1/pools/default/leases").json()["leases"]
        return [lease["fence"] for lease in leases if (lease["job"], lease["kind"]) == (self._job, "write")]
