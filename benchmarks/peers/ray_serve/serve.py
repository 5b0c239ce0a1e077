"""A Ray Serve deployment: requests gathered by `serve.batch`, their texts through the model together."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.peers.inference import BATCH, PORT, WORKERS, Model, read, write


@serve.deployment(num_replicas=WORKERS, max_ongoing_requests=1_000, ray_actor_options={"num_cpus": 0.5})
class Deployment:
    """The model in each replica."""

    def __init__(self) -> None:
        self.model = Model()

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.01 if BATCH > 1 else 0.0)
    async def answer(self, requests: list[list[str]]) -> list[str]:
        """One answer per request."""
        results = iter(self.model([text for texts in requests for text in texts]))
        return [write([next(results) for _ in texts]) for texts in requests]

    async def __call__(self, request: Request) -> Response:
        """Any path: a GET asks for health."""
        if request.method == "GET":
            return Response()
        return Response(await self.answer(read(await request.body())), media_type="application/json")


if __name__ == "__main__":
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(("BENCH_", "OMP_")) or name == "PYTHONPATH"}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": passed_on}, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT, "request_timeout_s": 600})
    bound: Any = Deployment
    serve.run(bound.bind())
    stopped.wait()
    serve.shutdown()
    ray.shutdown()
