"""The models that are measured: the small encoder, and two of common size whose weights are random but fixed.

Speed does not depend on what the weights say. `prepare` writes a model directory once, under build/bench/models.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "build" / "bench"
ENCODER = ROOT / "build" / "model"
NEW_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Model:
    """``task`` is Hugging Face's name for what it does; ``longest`` bounds the texts, in the encoder's tokens."""

    name: str
    title: str
    task: str
    longest: int
    write: Callable[[Path], None]


def prepare(model: Model) -> Path:
    """The model's directory, written when it is not there yet."""
    directory = BENCH / "models" / model.name
    if not (directory / "config.json").exists():
        unfinished = directory.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        model.write(unfinished)
        unfinished.rename(directory)
    return directory


def _encoder(directory: Path) -> None:
    shutil.copytree(ENCODER, directory, dirs_exist_ok=True)


def _classifier(directory: Path) -> None:
    """BERT-base with a head of five labels, and the small encoder's vocabulary (the two share BERT's)."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(ENCODER)
    torch.manual_seed(11)
    labels = {number: f"LABEL_{number}" for number in range(5)}
    config = BertConfig(vocab_size=len(tokenizer), id2label=labels, initializer_range=0.05)
    BertForSequenceClassification(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _translator(directory: Path) -> None:
    """Marian in the size of the published pairs of languages; it always writes NEW_TOKENS tokens."""
    import sentencepiece
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

    from benchmarks.texts import prose

    corpus = directory / "prose.txt"
    words = prose()
    corpus.write_text("\n".join(" ".join(words[start : start + 20]) for start in range(0, len(words), 20)), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(directory / "source"), vocab_size=4_000, hard_vocab_limit=False, minloglevel=2
    )
    corpus.unlink()
    (directory / "source.model").rename(directory / "source.spm")
    (directory / "source.vocab").unlink()
    shutil.copy(directory / "source.spm", directory / "target.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "source.spm"))
    own = [pieces.id_to_piece(index) for index in range(pieces.get_piece_size())]
    names = ["</s>", "<unk>", *(piece for piece in own if piece not in ("</s>", "<unk>", "<s>")), "<pad>"]
    (directory / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}), "utf-8")
    tokenizer = MarianTokenizer(
        source_spm=str(directory / "source.spm"),
        target_spm=str(directory / "target.spm"),
        vocab=str(directory / "vocab.json"),
        source_lang="en",
        target_lang="de",
        model_max_length=512,
    )
    torch.manual_seed(13)
    padding = len(names) - 1
    config = MarianConfig(
        vocab_size=len(names),
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2_048,
        decoder_ffn_dim=2_048,
        max_position_embeddings=512,
        pad_token_id=padding,
        eos_token_id=0,
        decoder_start_token_id=padding,
        init_std=0.1,
    )
    translator = MarianMTModel(config)
    generation: Any = GenerationConfig
    translator.generation_config = generation(
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        num_beams=1,
        pad_token_id=padding,
        eos_token_id=0,
        decoder_start_token_id=padding,
        bad_words_ids=[[padding]],
    )
    translator.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("minilm", "all-MiniLM-L6-v2, sentence embeddings", "sentence-embeddings", 400, _encoder),
        Model("bert-base", "BERT-base-size classifier, random weights", "text-classification", 400, _classifier),
        Model("translation", "Marian-size translator, random weights", "translation", 64, _translator),
    )
}
