"""Streamed pieces: whole characters, no stop and no beginning of one, and together the text that is not streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from batch_handler.tasks.generation_pieces import Pieces, text

TEXTS = st.text(st.sampled_from("ab c.,'ntve€é漢🙂👩🏽\n"), max_size=30)
STOPS = st.lists(st.sampled_from(["a", "ab", "abc", "€", "🙂", "\n\n", " c.", "aab"]), max_size=3)


def bytes_alone() -> Any:
    """A tokenizer in which every byte is a token, as GPT-2's is at its worst."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def byte_fallback() -> Any:
    """A tokenizer that knows a few letters and writes the rest as bytes, as Llama's does."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcn.,'"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    from tokenizers import normalizers

    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def tidying() -> Any:
    """Letters as tokens, in a tokenizer that takes spaces before marks away."""
    tokenizer = bytes_alone()
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True  # transformers 5 wants to be sure
    return tokenizer


KINDS = {"bytes": bytes_alone(), "fallback": byte_fallback(), "tidying": tidying()}


def pieces_of(tokenizer: Any, ids: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    pieces = Pieces(tokenizer, stops)
    return [*(pieces.add(token) for token in ids), pieces.rest()]


@pytest.mark.parametrize("kind", KINDS)
@given(written=TEXTS, stops=STOPS, cut=st.integers(0, 120))
def test_pieces_are_the_text_and_never_a_stop(kind: str, written: str, stops: list[str], cut: int) -> None:
    tokenizer = KINDS[kind]
    ids = tokenizer(written, add_special_tokens=False)["input_ids"][:cut]
    found = pieces_of(tokenizer, ids, stops)
    joined = "".join(found)
    assert joined == text(tokenizer, ids, stops)
    assert not any(stop in joined for stop in stops)
    assert "�" not in "".join(found[:-1])


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
def test_a_character_of_several_tokens_comes_whole(kind: str) -> None:
    ids = KINDS[kind]("a🙂b", add_special_tokens=False)["input_ids"]
    assert len(ids) == 6
    assert [piece for piece in pieces_of(KINDS[kind], ids) if piece] in (["a", "🙂", "b"], ["a", "🙂b"])


def test_text_is_sent_as_soon_as_nothing_can_change_it() -> None:
    ids = KINDS["bytes"]("a b", add_special_tokens=False)["input_ids"]
    assert pieces_of(KINDS["bytes"], ids) == ["a", " ", "b", ""]


def test_the_beginning_of_a_stop_waits_until_it_is_none() -> None:
    tokenizer = KINDS["bytes"]
    ids = tokenizer("cababc.", add_special_tokens=False)["input_ids"]
    assert pieces_of(tokenizer, ids, ["abc"]) == ["c", "", "", "ab", "", "", "", ""]
    assert pieces_of(tokenizer, ids, ["abd"]) == ["c", "", "", "ab", "", "abc", ".", ""]


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    ids = KINDS["bytes"]("a🙂", add_special_tokens=False)["input_ids"]
    assert pieces_of(KINDS["bytes"], ids[:-1]) == ["a", "", "", "", "�"]


def test_spaces_that_tidying_takes_away_were_never_sent() -> None:
    ids = KINDS["tidying"]("ab . c n't", add_special_tokens=False)["input_ids"]
    assert "".join(pieces_of(KINDS["tidying"], ids)) == text(KINDS["tidying"], ids) == "ab. cn't"


def test_a_script_without_spaces_does_not_wait_for_one() -> None:
    ids = KINDS["tidying"]("漢漢漢", add_special_tokens=False)["input_ids"]
    assert [piece for piece in pieces_of(KINDS["tidying"], ids) if piece] == ["漢", "漢", "漢"]
