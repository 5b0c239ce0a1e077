"""Generated text and the tokenisers trained on it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SYLLABLES = ("ka", "ro", "mi", "ten", "sol", "ar", "bel", "dun", "fi", "gor", "han", "jul")
GOOD = ("splendid", "charming", "bright", "tender", "fresh")
BAD = ("dreadful", "rotten", "gloomy", "sour", "stale")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def words(count: int, seed: int = 0) -> list[str]:
    """Invented words, a few syllables each."""
    generator = random.Random(seed)
    return ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 3))) for _ in range(count)]


def sentences(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Texts of 1 to `longest` words in random order of length, with punctuation, capitals and letters beyond ASCII."""
    generator = random.Random(seed)
    vocabulary = [*words(300), *GOOD, *BAD, "Ünïcödé", "naïve", "日本", "π≈3.14", "🫖", "don't", "e-mail"]
    texts = []
    for _ in range(count):
        chosen = generator.choices(vocabulary, k=generator.randint(1, longest))
        texts.append(" ".join(chosen).capitalize() + generator.choice(("", ".", "?", " …", "!!")))
    return texts


def opinions(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Texts with one telling word among many that say nothing; the label is which kind it was (1: good)."""
    generator = random.Random(seed)
    neutral = words(40)
    texts, labels = [], []
    for _ in range(count):
        label = generator.randint(0, 1)
        chosen = generator.choices(neutral, k=generator.randint(2, 12))
        chosen.insert(generator.randint(0, len(chosen)), generator.choice(GOOD if label else BAD))
        texts.append(" ".join(chosen))
        labels.append(label)
    return texts, labels


PEOPLE = ("anselka", "boromi", "cedrun", "dalten", "elfiro", "frimas", "gundel", "hirosa")
PLACES = ("ostburg", "pellham", "quenfort", "rivadun", "sarnwick", "tolmouth", "upfield", "varnstad")


@dataclass(frozen=True)
class Story:
    """Words that say nothing with a person of two names and a place among them; one label per word."""

    words: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words between spaces."""
        return " ".join(self.words)

    def named(self, kind: str) -> str:
        """The words of the person (PER) or of the place (LOC)."""
        return " ".join(word for word, label in zip(self.words, self.labels, strict=True) if label.endswith(kind))


def stories(count: int, seed: int = 0, shortest: int = 2, longest: int = 12) -> list[Story]:
    """Stories whose person and place stand anywhere."""
    generator = random.Random(seed)
    neutral = words(40)
    told = []
    for _ in range(count):
        pieces = [[(word, "O")] for word in generator.choices(neutral, k=generator.randint(shortest, longest))]
        names = generator.sample(PEOPLE, 2)
        person = [(names[0], "B-PER"), (names[1], "I-PER")]
        for piece in (person, [(generator.choice(PLACES), "B-LOC")]):
            pieces.insert(generator.randint(0, len(pieces)), piece)
        flat = [pair for piece in pieces for pair in piece]
        told.append(Story(tuple(word for word, _ in flat), tuple(label for _, label in flat)))
    return told


def wordpiece(
    longest: int, types: bool = True, truncation_side: str = "right", more: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A BERT-like tokeniser: ``[CLS] text [SEP] pair [SEP]``, lower case. It also knows the letters and words of `more`."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator([*sentences(1_500, seed=1), *opinions(200)[0], *more], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = decoders.WordPiece()
    names = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=longest,
        model_input_names=names,
        truncation_side=truncation_side,
    )


def byte_pairs(longest: int) -> PreTrainedTokenizerFast:
    """A RoBERTa-like tokeniser: byte-level pieces, ``<s> text </s></s> pair </s>``, padding index 1, no token types."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(ROBERTA_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(1_500, seed=2), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s>:1 $B:1 </s>:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=longest,
        model_input_names=["input_ids", "attention_mask"],
    )


def sentencepiece_model(directory: Path) -> Path:
    """A sentencepiece model trained on generated text, as Marian, M2M100 and their kin need one."""
    corpus = directory / "corpus.txt"
    corpus.write_text("\n".join(sentences(1_500, seed=3)), "utf-8")
    prefix = directory / "pieces"
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(prefix), vocab_size=300, character_coverage=1.0, minloglevel=2, num_threads=1
    )
    return prefix.with_suffix(".model")


def metaspace_pairs(special: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte pairs over ``▁word`` pieces as NLLB takes them: a vocabulary that starts with `special`, and the merges."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(sentences(1_500, seed=4), trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    return trained["vocab"], [tuple(pair) for pair in trained["merges"]]


def unigram_pieces(special: Sequence[str]) -> list[tuple[str, float]]:
    """Scored pieces as mBART takes them, behind `special`."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, unk_token="<unk>", special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(sentences(1_500, seed=4), trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
