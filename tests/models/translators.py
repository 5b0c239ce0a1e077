"""Tiny sequence-to-sequence models: BART and T5 without languages, Marian with one pair, M2M100, NLLB and mBART with many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_LANGUAGES

from models.language import byte_pairs, metaspace_pairs, sentencepiece_model, unigram_pieces

LONGEST = 48
SPREAD = 0.8
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": LONGEST,
    "init_std": SPREAD,
}


def save_bart(directory: Path, **settings: Any) -> Path:
    """BART over byte-level pieces."""
    tokenizer = byte_pairs(LONGEST)
    config = BartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
        **{**SIZES, **settings},
    )
    return _save(directory, BartForConditionalGeneration, config, tokenizer)


def save_t5(directory: Path) -> Path:
    """T5 with its relative positions, which know no longest text: the tokeniser's limit counts."""
    tokenizer = byte_pairs(LONGEST)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=1,
        num_heads=2,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        initializer_factor=2.0,
    )
    return _save(directory, T5ForConditionalGeneration, config, tokenizer)


def save_marian(directory: Path) -> Path:
    """Marian: one pair of languages, sentencepiece on either side."""
    directory.mkdir(parents=True, exist_ok=True)
    pieces = sentencepiece_model(directory)
    vocabulary = _vocabulary(pieces, first=("</s>", "<unk>"), last=("<pad>",))
    (directory / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    tokenizer = MarianTokenizer(
        source_spm=str(pieces),
        target_spm=str(pieces),
        vocab=str(directory / "vocab.json"),
        source_lang="en",
        target_lang="xx",
        model_max_length=LONGEST,
    )
    config = MarianConfig(
        vocab_size=len(vocabulary),
        pad_token_id=vocabulary["<pad>"],
        eos_token_id=0,
        bos_token_id=0,
        decoder_start_token_id=vocabulary["<pad>"],
        forced_eos_token_id=0,
        **SIZES,
    )
    return _save(directory, MarianMTModel, config, tokenizer)


def save_m2m100(directory: Path) -> Path:
    """M2M100: a hundred language tokens (``__en__``) behind the vocabulary, written by language code."""
    directory.mkdir(parents=True, exist_ok=True)
    pieces = sentencepiece_model(directory)
    vocabulary = _vocabulary(pieces, first=("<s>", "<pad>", "</s>", "<unk>"))
    (directory / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    tokenizer = M2M100Tokenizer(
        vocab_file=str(directory / "vocab.json"), spm_file=str(pieces), src_lang="en", tgt_lang="fr", model_max_length=LONGEST
    )
    return _save(directory, M2M100ForConditionalGeneration, _multilingual(len(vocabulary) + 100), tokenizer)


def save_nllb(directory: Path) -> Path:
    """NLLB: language tokens such as ``fra_Latn`` in the vocabulary itself; the model is M2M100's."""
    vocabulary, merges = metaspace_pairs(SPECIAL)
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=merges, src_lang="eng_Latn", tgt_lang="fra_Latn", model_max_length=LONGEST)
    return _save(directory, M2M100ForConditionalGeneration, _multilingual(len(tokenizer)), tokenizer)


def save_mbart(directory: Path) -> Path:
    """mBART: language tokens such as ``fr_XX``."""
    codes = [(code, 0.0) for code in (*MBART_LANGUAGES, "<mask>")]
    tokenizer = MBartTokenizer(
        vocab=[*unigram_pieces(SPECIAL), *codes], src_lang="en_XX", tgt_lang="fr_XX", model_max_length=LONGEST
    )
    config = MBartConfig(vocab_size=len(tokenizer), pad_token_id=1, bos_token_id=0, eos_token_id=2, **SIZES)
    return _save(directory, MBartForConditionalGeneration, config, tokenizer)


def _multilingual(vocabulary: int) -> M2M100Config:
    return M2M100Config(
        vocab_size=vocabulary + 8, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, **SIZES
    )


def _vocabulary(pieces: Path, first: tuple[str, ...], last: tuple[str, ...] = ()) -> dict[str, int]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    known = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    special = {*first, *last, "<unk>", "<s>", "</s>"}
    ordered = [*first, *(piece for piece in known if piece not in special), *last]
    return {piece: index for index, piece in enumerate(ordered)}


def _save(directory: Path, kind: Any, config: Any, tokenizer: Any) -> Path:
    torch.manual_seed(11)
    kind(config).eval().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
