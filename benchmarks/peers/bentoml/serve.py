"""A BentoML service whose one method is batchable: records of several requests come as one list."""

from __future__ import annotations

import os
import sys
from typing import Any

import bentoml

from benchmarks.peers.inference import BATCH, PORT, WORKERS, Model


@bentoml.service(workers=WORKERS, traffic={"timeout": 600, "max_concurrency": 100_000})
class Service:
    """The model in each worker."""

    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(route="/invocations", batchable=BATCH > 1, max_batch_size=max(BATCH, 5_000), max_latency_ms=600_000)
    def invocations(self, inputs: list[str]) -> list[Any]:
        """One result per text."""
        return self.model(inputs)


if __name__ == "__main__":
    options = ["--host", "127.0.0.1", "--port", str(PORT)]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", "serve", "benchmarks.peers.bentoml.serve:Service", *options])  # noqa: S606 - own arguments
