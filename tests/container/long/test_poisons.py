"""A flow of requests each of which ends a worker, among callers who mean no harm: nobody is left without an answer."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from containers import Container, readable
from models.poison import MARK, save_mortal

SECONDS = int(os.environ.get("POISON_SECONDS", "60"))
CLIENTS = 32


class Crowd:
    """Callers of one kind, each in a thread of its own; what they were answered, by status and type."""

    def __init__(self, container: Container, until: float) -> None:
        self.answers: Counter[str] = Counter()
        self.slowest = 0.0
        self._container = container
        self._until = until
        self._lock = threading.Lock()

    def ask(self, number: int) -> None:
        """Ask again and again; after a 503 as soon as it allows, at most once a second."""
        with httpx.Client(base_url=self._container.base_url, timeout=120) as http:
            while time.monotonic() < self._until:
                if self.call(http, f"an honest text of caller {number}").status_code == 503:
                    time.sleep(1)

    def call(self, http: httpx.Client, text: str) -> httpx.Response:
        """One call, counted."""
        began = time.monotonic()
        answer = http.post("/invocations", json={"inputs": text})
        kind = f"{answer.status_code} {answer.json()['error']['type']}" if answer.status_code >= 400 else "200"
        with self._lock:
            self.answers[kind] += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
        return answer

    def poison(self, number: int) -> None:
        """One call that ends its worker."""
        with httpx.Client(base_url=self._container.base_url, timeout=120) as http:
            self.call(http, f"{MARK} words, the {number}th of their kind")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that dies of one word."""
    return readable(save_mortal(tmp_path_factory.mktemp("mortal") / "model"))


@pytest.mark.parametrize("per_second", [1.0, 0.1])
def test_a_flow_of_poisons_leaves_nobody_without_an_answer(mortal: Path, per_second: float) -> None:
    with Container(mortal, {"HF_TRUST_REMOTE_CODE": "true"}) as container:
        began = time.monotonic()
        good, bad = Crowd(container, began + SECONDS), Crowd(container, began + SECONDS)
        callers = [threading.Thread(target=good.ask, args=(number,)) for number in range(CLIENTS)]
        poisons = [threading.Thread(target=bad.poison, args=(number,)) for number in range(int(SECONDS * per_second))]
        for caller in callers:
            caller.start()
        for number, poison in enumerate(poisons):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            poison.start()
        for thread in (*callers, *poisons):
            thread.join()
        ended = time.monotonic()
        container.wait_for_ping(200, 60)
        print(
            f"{per_second:g} poisons a second for {SECONDS} s: {CLIENTS} callers {dict(good.answers)}, "
            f"slowest {good.slowest:.1f} s; "
            f"poisons {dict(bad.answers)}; healthy {time.monotonic() - ended:.1f} s after the last"
        )
        # Where poison comes faster than a worker starts, some calls meet their response timeout.
        assert set(good.answers) <= {"200", "503 NotReady", "503 WorkerLost", *(["504 Timeout"] if per_second >= 1 else [])}
        assert set(bad.answers) <= {"422 PoisonInput", "503 NotReady", "503 WorkerLost", "504 Timeout"}
        assert good.answers["200"] > 0
        assert container.state()["Running"]
        assert good.call(container.http, "and after all an honest text").status_code == 200
