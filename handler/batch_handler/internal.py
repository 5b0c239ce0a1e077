"""Names between the worker and the entrypoint (environment variables) or the frontend (headers). They are nobody else's."""

from __future__ import annotations

FAILURE_FILE = "_BYOC_FAILURE_FILE"
"""Where a worker writes why its model cannot be loaded."""
EARLY_ANSWERS = "_BYOC_EARLY_ANSWERS"
"""``true`` where the frontend takes answers before their batch has ended."""
LOG_MARK = "_BYOC_LOG_MARK"
"""What a worker puts before a log line that has its final form; drawn anew at every start."""
STAGES = "_BYOC_STAGES"
"""``true`` where the frontend wants to know how long the stages of every request took."""
ALONE = "x-byoc-alone"
"""A request's header: its records are to be run one by one, and noted so, because it may have ended another worker."""
REFUSED = "x-byoc-refused"
"""A request's header: the numbers of records that ended workers, and are not to be run. No caller can send either."""
GPUS = "_BYOC_GPUS"
"""Identifiers of the container's GPUs in the order of TorchServe's ``gpu_id``, of which each worker keeps its own."""
WORKER_TEMPLATE = "_BYOC_WORKER_TEMPLATE"
"""``always``, ``restarts`` or ``never``: which workers are forked from one process that has imported what they need,
whatever seems best."""
