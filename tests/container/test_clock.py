"""The wall clock jumps by hours, forwards and back: deadlines, queues and answers go by the monotonic clock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import DOCKER, IMAGE, Container, docker, readable
from incidents import Call, Incident, Told, lets_nobody_down
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


def test_calls_in_flight_and_later_ones_survive_a_clock_that_jumps(image: str, tmp_path: Path, told: Told) -> None:
    model = readable(save_script(tmp_path / "model", SCRIPT))
    with Container(model, JUMPING, image=image) as container:
        before = container.worker()
        for hours in HOURS:
            probe = Call({"text": "probe", "seconds": 0}, "probe")
            with Incident(container, f"the clock jumps to {hours}", probe, shows=False) as incident:
                for number in range(3):
                    incident.call(Call({"text": f"{hours} {number}", "seconds": 1.5}, f"{hours} {number}"))
                time.sleep(0.5)
                incident.begin()
                jump(container, hours)
                assert abs(float(container.execute("date", "+%s")) - time.time() - 3_600 * float(hours[:-1])) < 60
                assert lets_nobody_down(incident, told).seen == "3 × 200"
                assert incident.said_so is None
            assert container.worker() == before
