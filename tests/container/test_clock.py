"""The wall clock jumps by hours, forwards and back: deadlines, queues and answers go by the monotonic clock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from containers import DOCKER, IMAGE, Container, docker, readable
from models.scripts import save_script

SHIM = "/usr/local/lib/libfaketime.so.1"
OFFSET = "/tmp/offset"
JUMPING = {
    "LD_PRELOAD": SHIM,
    "FAKETIME_TIMESTAMP_FILE": OFFSET,
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
}
DOCKERFILE = f"""
FROM debian:bookworm-slim AS clock
RUN apt-get update && apt-get install -y --no-install-recommends libfaketime && cp /usr/lib/*/faketime/libfaketime.so.1 {SHIM}
FROM {IMAGE}
COPY --from=clock {SHIM} {SHIM}
"""
SCRIPT = """
import json, time

def model_fn(model_dir):
    return None

def input_fn(body, content_type):
    return json.loads(body)

def predict_fn(asked, model):
    until = time.monotonic() + asked["seconds"]
    while time.monotonic() < until:  # the library that shifts clocks breaks sleep
        pass
    return asked["text"]
"""
HOURS = ("+3h", "-3h", "+0h")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image under test with a library before libc that shifts what the wall clock says, and nothing else."""
    tag = f"byoc-test-clock:{os.getpid()}"
    subprocess.run(
        [DOCKER, "build", "--tag", tag, "-"], input=DOCKERFILE, text=True, check=True, capture_output=True, timeout=600
    )
    yield tag
    docker("rmi", tag, check=False)


def jump(container: Container, hours: str) -> None:
    """From now on the wall clock is so far from the true time. The file is replaced whole: every look at a clock reads it."""
    container.execute("sh", "-c", f"echo {hours} > {OFFSET}.next && mv {OFFSET}.next {OFFSET}")


def test_calls_in_flight_and_later_ones_survive_a_clock_that_jumps(image: str, tmp_path: Path) -> None:
    model = readable(save_script(tmp_path / "model", SCRIPT))
    with Container(model, JUMPING, image=image) as container, ThreadPoolExecutor(3) as pool:
        (before,) = container.processes("model_service_worker.py")
        for hours in HOURS:
            calls = [pool.submit(container.invoke, {"text": f"{hours} {number}", "seconds": 1.5}) for number in range(3)]
            time.sleep(0.5)
            jump(container, hours)
            assert abs(float(container.execute("date", "+%s")) - time.time() - 3_600 * float(hours[:-1])) < 60
            answers = [call.result() for call in calls]
            assert [(answer.status_code, answer.json()) for answer in answers] == [(200, f"{hours} {n}") for n in range(3)]
            assert container.ping() == 200
            assert container.processes("model_service_worker.py") == [before]
            print(f"| the clock jumps to {hours} | 200 | 0.0 | {len(answers)} answered |")
