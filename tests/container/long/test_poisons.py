"""A flow of requests each of which ends a worker, among callers who mean no harm: nobody is left without an answer."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from containers import Container, readable
from incidents import ANSWERED, Call, Row, Told, known, look, tally
from models.poison import MARK, save_mortal

SECONDS = int(os.environ.get("POISON_SECONDS", "60"))
CLIENTS = 32


class Crowd:
    """Callers of one kind, each in a thread of its own; what they saw, how many were lost, and the longest wait in seconds."""

    def __init__(self, container: Container, until: float) -> None:
        self.seen: Counter[str] = Counter()
        self.lost = 0
        self.slowest = 0.0
        self._container = container
        self._until = until
        self._lock = threading.Lock()

    def ask(self, call: Call) -> None:
        """Ask again and again; after a 503 as soon as it allows, at most once a second."""
        while time.monotonic() < self._until:
            if self.ask_once(call).startswith("503"):
                time.sleep(1)

    def ask_once(self, call: Call) -> str:
        """One call, counted."""
        began = time.monotonic()
        seen, own = look(call, lambda: call.ask(self._container))
        with self._lock:
            self.seen[seen] += 1
            self.lost += not own
            self.slowest = max(self.slowest, time.monotonic() - began)
        return seen


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that dies of one word."""
    return readable(save_mortal(tmp_path_factory.mktemp("mortal") / "model"))


@pytest.mark.parametrize("per_second", [1.0, 0.1])
def test_a_flow_of_poisons_leaves_nobody_without_an_answer(mortal: Path, told: Told, per_second: float) -> None:
    with Container(mortal, {"HF_TRUST_REMOTE_CODE": "true"}) as container:
        honest = [known(container, {"inputs": f"an honest text of caller {number}"}) for number in range(CLIENTS)]
        deadly = [
            Call({"inputs": f"{MARK} words, the {number}th of their kind"}, None) for number in range(int(SECONDS * per_second))
        ]
        began = time.monotonic()
        good, bad = Crowd(container, began + SECONDS), Crowd(container, began + SECONDS)
        callers = [threading.Thread(target=good.ask, args=(call,)) for call in honest]
        poisons = [threading.Thread(target=bad.ask_once, args=(call,)) for call in deadly]
        for caller in callers:
            caller.start()
        for number, poison in enumerate(poisons):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            poison.start()
        for thread in (*callers, *poisons):
            thread.join()
        ended = time.monotonic()
        container.wait_for_ping(200, 60)
        healthy_s = time.monotonic() - ended
        fault = f"{per_second:g} poisons a second for {SECONDS} s"
        afterwards = f"slowest {good.slowest:.1f} s, serves {healthy_s:.1f} s after the last"
        told(Row(f"{fault}: {CLIENTS} callers", good.seen.total(), tally(good.seen.elements()), "", afterwards, good.lost))
        told(Row(f"{fault}: the poisons", bad.seen.total(), tally(bad.seen.elements()), "", "", bad.lost))
        assert set(good.seen) <= {ANSWERED, "503 NotReady", "503 WorkerLost"}
        assert set(bad.seen) <= {"422 PoisonInput", "503 NotReady", "503 WorkerLost"}
        assert (good.lost, bad.lost) == (0, 0)
        assert good.seen[ANSWERED] > 0
        assert container.state()["Running"]
        assert good.ask_once(honest[0]) == ANSWERED
