"""Input files in which some lines are bad, in every way that real ones are, with what each line must come to."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.language import words

LONG = 200_000
BAD: dict[str, bytes] = {
    "broken JSON": b'{"inputs": "half',
    "wrong key": b'{"text": "named otherwise"}',
    "empty": b"",
    "invalid UTF-8": b'{"inputs": "\xff\xfe"}',
    "wrong type": b'{"inputs": 17}',
    "wrong type beside a key of the caller's": b'{"id": "a", "inputs": 17}',
}
"""Lines that come to a placeholder."""
ODD: dict[str, bytes] = {
    "200 kB": b'{"inputs": "' + b"long " * (LONG // 5) + b'"}',
    "U+2028": '{"inputs": "one\u2028line"}'.encode(),
    "CRLF": b'{"inputs": "ends like on Windows"}\r',
}
"""Lines that look bad and are good."""


@dataclass(frozen=True)
class Dirty:
    """A file: how many lines it has, and the numbers, from 1, of those that must fail."""

    path: Path
    count: int
    bad: frozenset[int]


def write(path: Path, count: int, seed: int, share: float = 0.01) -> Dirty:
    """A file of `count` lines; a `share` of them is bad or odd, every kind among them. Good ones carry their own number."""
    bad = set()
    with path.open("wb") as file:
        for number, (line, is_bad) in enumerate(_lines(count, seed, share), 1):
            file.write(line + b"\n")
            if is_bad:
                bad.add(number)
    return Dirty(path, count, frozenset(bad))


def _lines(count: int, seed: int, share: float) -> Iterator[tuple[bytes, bool]]:
    generator = random.Random(seed)
    vocabulary = words(100)
    kinds = [*((line, True) for line in BAD.values()), *((line, False) for line in ODD.values())]
    special = max(len(kinds), int(count * share))
    places = dict(
        zip(sorted(generator.sample(range(count), special)), (kinds[i % len(kinds)] for i in range(special)), strict=True)
    )
    for number in range(1, count + 1):
        if number - 1 in places:
            yield places[number - 1]
            continue
        text = " ".join(generator.choices(vocabulary, k=generator.randint(1, 8)))
        yield json.dumps({"line": number, "inputs": text}).encode(), False
