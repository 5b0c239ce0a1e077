"""The image's HEALTHCHECK: one GET /ping on the serving port."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from entrypoint.http import get, reachable_address

TIMEOUT_S = 2.0
DEFAULT_PORT = "8080"


def healthcheck(environment: Mapping[str, str]) -> int:
    """0 when the server is ready for requests, else 1 and a sentence. SageMaker's limit for /ping is 2 seconds too."""
    host = reachable_address(environment.get("BYOC_BIND_ADDRESS", "").strip())
    port = environment.get("SAGEMAKER_BIND_TO_PORT", "").strip() or DEFAULT_PORT
    try:
        status, _ = get(host, int(port), "/ping", TIMEOUT_S)
    except (OSError, ValueError) as error:
        print(f"no answer from {host}:{port}: {error}", file=sys.stderr)
        return 1
    if status != 200:
        print(f"/ping on {host}:{port} answers {status}", file=sys.stderr)
    return 0 if status == 200 else 1
