"""Loads, unloads, lists and calls by chance from several threads, every answer judged by what the models really are.

The reference keeps, for each name, the artefact last loaded. Each name belongs to one thread at a time, so that its answers
are certain; between the names there is no order at all. A share of the calls goes to names of other threads: of those only
the word is certain, never whether the model is there.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from models import many
from shelf import Shelf

WEIGHTS = {"load": 20, "unload": 18, "call": 45, "describe": 5, "list": 5, "neighbour": 7}
AFTER_MEMORY_S = 0.2


@dataclass
class Outcome:
    """What was done, how it was answered, how long it took in seconds, and every answer that cannot be."""

    answers: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class Players:
    """Threads that share an endpoint's models. ``loaded_at_once`` bounds how many are loaded together."""

    def __init__(self, shelf: Shelf, artefacts: Sequence[tuple[Path, str]], seed: int, threads: int, loaded_at_once: int) -> None:
        self._shelf = shelf
        self._artefacts = artefacts
        self._seed = seed
        self._threads = threads
        self._places = threading.BoundedSemaphore(loaded_at_once)
        self._lock = threading.Lock()
        self.outcome = Outcome()

    def play(self, operations: int) -> Outcome:
        """Do so many operations in all, then unload what is left; the outcome."""
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(lambda number: self._thread(number, operations // self._threads), range(self._threads)))
        return self.outcome

    def _thread(self, number: int, operations: int) -> None:
        chance = random.Random(self._seed * 1_000 + number)
        names = [f"model {place}/{number}" for place in range(number, len(self._artefacts), self._threads)]
        words: dict[str, str | None] = dict.fromkeys(names)
        for _ in range(operations):
            (what,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            name = chance.choice(names)
            if what == "call" and chance.random() < 0.8:  # mostly where something is
                name = chance.choice([one for one in names if words[one]] or names)
            getattr(self, f"_{what}")(chance, name, words)
        for name in names:
            if words[name]:
                self._unload(chance, name, words)

    def _load(self, chance: random.Random, name: str, words: dict[str, str | None]) -> None:
        if words[name] is None and not self._places.acquire(blocking=False):
            self._call(chance, name, words)
            return
        path, word = chance.choice(self._artefacts)
        answer = self._timed("load", lambda: self._shelf.load(name, path))
        if words[name] is not None:
            self._expect("load again", answer, 409)
        elif self._expect("load", answer, 200, 507) == 200:
            words[name] = word
        else:
            self._places.release()
            time.sleep(AFTER_MEMORY_S)

    def _unload(self, _chance: random.Random, name: str, words: dict[str, str | None]) -> None:
        answer = self._timed("unload", lambda: self._shelf.unload(name))
        self._expect("unload", answer, 200 if words[name] else 404)
        if words[name]:
            words[name] = None
            self._places.release()

    def _call(self, _chance: random.Random, name: str, words: dict[str, str | None]) -> None:
        answer = self._timed("call", lambda: self._shelf.call(name, {"inputs": "good day"}))
        word = words[name]
        if self._expect("call", answer, 200 if word else 404) == 200 and many.word_of(answer) != word:
            self._fault(f"{name} answers as {many.word_of(answer)} and is {word}")

    def _describe(self, _chance: random.Random, name: str, words: dict[str, str | None]) -> None:
        answer = self._shelf.describe(name)
        if self._expect("describe", answer, 200 if words[name] else 404) == 200:
            told = answer.json()
            if told["modelName"] != name or not told["modelUrl"].endswith(str(words[name])):
                self._fault(f"{name} is described as {told}")

    def _list(self, chance: random.Random, _name: str, words: dict[str, str | None]) -> None:
        listed = self._shelf.names(limit=chance.randint(1, 50))
        self.outcome.answers["list"] += 1
        if listed != sorted(set(listed)):
            self._fault(f"the list is not in order, or holds a name twice: {listed}")
        wrong = [name for name, word in words.items() if (name in listed) != (word is not None)]
        if wrong:
            self._fault(f"the list is wrong about {wrong}")

    def _neighbour(self, chance: random.Random, _name: str, _words: dict[str, str | None]) -> None:
        other = chance.randrange(len(self._artefacts))
        name = f"model {other}/{other % self._threads}"
        self._expect("neighbour", self._shelf.call(name, {"inputs": "good day"}), 200, 404, 503)

    def _timed(self, what: str, call: Callable[[], httpx.Response]) -> httpx.Response:
        began = time.monotonic()
        answer = call()
        with self._lock:
            self.outcome.seconds.setdefault(f"{what} {answer.status_code}", []).append(time.monotonic() - began)
        return answer

    def _expect(self, what: str, answer: httpx.Response, *allowed: int) -> int:
        with self._lock:
            self.outcome.answers[f"{what} {answer.status_code}"] += 1
        if answer.status_code not in allowed:
            self._fault(f"{what}: {answer.status_code} {answer.text[:300]}, where {allowed} was right")
        return answer.status_code

    def _fault(self, sentence: str) -> None:
        with self._lock:
            self.outcome.faults.append(sentence)
