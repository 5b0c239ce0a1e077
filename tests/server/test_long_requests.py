"""A request of more records than there is time for: its own caller is told, and nobody else notices."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bounded import kib
from running import RunningServer

RECORDS = 400_000
RESPONSE_TIMEOUT_S = 10
"""After which TorchServe would kill the worker; what is begun ends before."""
MOST_GROWTH_MIB = 1_024
"""Beside the body's 12 MB: records, their tokens as far as there was time, and Python's objects for both."""


def test_more_records_than_there_is_time_for_are_504_and_neighbours_are_answered_meanwhile(encoder: Path) -> None:
    body = json.dumps([f"a short text, number {number}" for number in range(RECORDS)])
    with (
        RunningServer(encoder, {"SAGEMAKER_TS_RESPONSE_TIMEOUT": str(RESPONSE_TIMEOUT_S)}) as server,
        ThreadPoolExecutor(1) as beside,
    ):
        (worker,) = server.workers()
        before, meanwhile = kib("VmHWM", worker), []
        large = beside.submit(server.invoke, body)
        while not large.done():
            meanwhile.append(server.invoke('"a neighbour"').status_code)
        answer, afterwards = large.result(), server.invoke('"the next one"')
        assert server.workers() == [worker]
        assert kib("VmHWM", worker) - before < MOST_GROWTH_MIB * 1024
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "Timeout"
    assert "SAGEMAKER_TS_RESPONSE_TIMEOUT" in answer.json()["error"]["message"]
    assert len(meanwhile) > 1
    assert {*meanwhile, afterwards.status_code} == {200}
