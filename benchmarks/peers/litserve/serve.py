"""A LitServe API: one text per request, batched by LitServe when BENCH_BATCH is above 1; or a list of texts per request."""

from typing import Any

import litserve
from fastapi import Request

from benchmarks.peers.inference import BATCH, PORT, WORKERS, Model


class Api(litserve.LitAPI):
    """LitServe's methods."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.model = Model()

    def decode_request(self, request: Request) -> list[str]:
        """The texts of a request. LitServe takes this very annotation for "hand me the parsed JSON"."""
        inputs = request["inputs"]
        return [inputs] if isinstance(inputs, str) else list(inputs)

    def predict(self, inputs: Any) -> Any:
        """Results per request: of one request without batching, of several with it."""
        requests = inputs if BATCH > 1 else [inputs]
        results = iter(self.model([text for texts in requests for text in texts]))
        answers = [[next(results) for _ in texts] for texts in requests]
        return answers if BATCH > 1 else answers[0]

    def encode_response(self, output: Any) -> Any:
        """A list of results."""
        return output


if __name__ == "__main__":
    api = Api(max_batch_size=BATCH, batch_timeout=0.01 if BATCH > 1 else 0.0, api_path="/invocations")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=WORKERS, timeout=600, healthcheck_path="/ping")
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False, num_api_servers=1)
