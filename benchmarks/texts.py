"""The texts and payloads of the measurement: English prose of lognormal length, the same for every system and run.

Lengths are drawn in blocks of 64 that each cover the whole distribution, so that a slow system, which answers few
requests, and a fast one see the same mean length. The order within a block is random.
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from pydoc_data.topics import topics

BLOCK = 64
MEDIAN, SIGMA = 20.0, 1.0
SHORTEST, LONGEST = 3, 400
FRAME = 2
"""Tokens that the encoder puts around every text: ``[CLS]`` and ``[SEP]``."""

CountTokens = Callable[[Sequence[str]], list[int]]


def lengths(count: int, seed: int, longest: int = LONGEST) -> list[int]:
    """Lengths in tokens, the frame included: lognormal, median 20, sigma 1.0, cut to 3 … `longest`, mean about 32."""
    generator = random.Random(seed)
    normal = statistics.NormalDist()
    drawn: list[int] = []
    while len(drawn) < count:
        block = [MEDIAN * math.exp(SIGMA * normal.inv_cdf((rank + generator.random()) / BLOCK)) for rank in range(BLOCK)]
        generator.shuffle(block)
        drawn.extend(min(longest, max(SHORTEST, int(length))) for length in block)
    return drawn[:count]


def prose() -> list[str]:
    """The words of the Python documentation's running text, in order, without headings, code and grammar."""
    words: list[str] = []
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            if not re.match(r"[A-Z]", paragraph) or re.search(r"\n[*=\-~^]{3}|::=|\n {2}", paragraph):
                continue
            words.extend(re.sub(r"[*\"_]", "", paragraph).split())
    return words


def texts(wanted: Sequence[int], count_tokens: CountTokens, seed: int) -> list[str]:
    """One text per wanted length, cut from running prose at word boundaries and exactly that long in tokens.

    A word's pieces do not depend on its neighbours (tokenisers of BERT's kind split at spaces first), so words are
    counted once. A word that would overshoot is left out.
    """
    words = prose()
    distinct = list(dict.fromkeys(words))
    pieces = dict(zip(distinct, count_tokens(distinct), strict=True))
    generator = random.Random(seed)
    return [" ".join(_cut(words, pieces, length - FRAME, generator.randrange(len(words)))) for length in wanted]


def _cut(words: Sequence[str], pieces: dict[str, int], tokens: int, start: int) -> Iterator[str]:
    for offset in range(len(words)):
        word = words[(start + offset) % len(words)]
        if 0 < pieces[word] <= tokens:
            tokens -= pieces[word]
            yield word
        if tokens == 0:
            return


def one_per_request(records: Sequence[str]) -> list[bytes]:
    """W1: one JSON body per text."""
    return [json.dumps({"inputs": text}).encode() for text in records]


def lines_per_request(records: Sequence[str], size: int) -> list[bytes]:
    """W2 as JSON Lines: `size` texts per body, whole bodies only."""
    return [b"\n".join(one_per_request(part)) for part in _parts(records, size)]


def list_per_request(records: Sequence[str], size: int) -> list[bytes]:
    """The same texts as one JSON list per body, for servers that read no JSON Lines."""
    return [json.dumps({"inputs": list(part)}).encode() for part in _parts(records, size)]


def _parts(records: Sequence[str], size: int) -> list[Sequence[str]]:
    """Consecutive parts of exactly `size` texts; a request larger than the list goes round it."""
    if size > len(records):
        return [(list(records) * -(-size // len(records)))[:size]]
    return [records[start : start + size] for start in range(0, len(records) - size + 1, size)]
