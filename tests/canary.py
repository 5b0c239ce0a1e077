"""A caller that does nothing wrong, while others do: its answers are known beforehand, and each is compared."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import numpy

from running import Endpoint

TEXTS = tuple(f"The {word} bird sings in the {number}th tree." for number, word in enumerate(("red", "old", "last", "small"), 3))
TOLERANCE = 1e-5


class Canary:
    """Asks for embeddings one after another, from a thread of its own. ``wrong`` says what was not as it should be."""

    def __init__(self, server: Endpoint, path: str = "/invocations") -> None:
        self._server = Endpoint(server.base_url)
        self._path = path
        self._known = {text: self._embedding(text) for text in TEXTS}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sing)
        self.answers = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._server.http.close()

    def assert_well(self) -> None:
        """Fails unless there were answers and every one was right."""
        assert self.answers > 0
        assert self.wrong == []

    def _sing(self) -> None:
        while not self._over.is_set():
            for text, known in self._known.items():
                try:
                    distance = numpy.abs(self._embedding(text) - known).max()
                    if distance > TOLERANCE:
                        self.wrong.append(f"{text}: {distance} off")
                except Exception as error:  # noqa: BLE001 - whatever it is, the neighbour was not spared
                    self.wrong.append(f"{text}: {error!r}")
                self.answers += 1

    def _embedding(self, text: str) -> numpy.ndarray:
        answer = self._server.http.post(self._path, json={"inputs": text})
        assert answer.status_code == 200, f"{answer.status_code} {answer.text[:200]}"
        return numpy.array(answer.json(), numpy.float32)
