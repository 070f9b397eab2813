"""A job over HTTP: the requests of support.jobs, sent as the agent sends them."""

from dataclasses import dataclass

import httpx

from rampmeter.core.decode import decode_answer, encode
from support.examples import PATHS
from support.jobs import Job


@dataclass
class HttpJob(Job):
    """Sends its requests through a client, sync or async."""

    def url(self, request, pool="default"):
        """Where this request goes."""
        return f"/v1/pools/{pool}/{PATHS[type(request)]}"

    def send(self, client, request):
        """Send a request; hear the answer if there is one. Gives the HTTP response."""
        return self._heard(client.post(self.url(request), content=encode(request)))

    async def asend(self, client, request):
        """The same with an async client."""
        return self._heard(await client.post(self.url(request), content=encode(request)))

    def enter(self, client):
        """Register and confirm."""
        self.send(client, self.register())
        self.send(client, self.heartbeat())

    def _heard(self, response: httpx.Response):
        if response.status_code == 200:
            answer = decode_answer(response.content)
            self.acked = answer.seq
            self.fence = getattr(answer, "fence", self.fence)
        return response
