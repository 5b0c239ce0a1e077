"""Engines exported at packaging: what eager gives in full precision, and in any precision the same alone and in company."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from batch_handler import tasks
from batch_handler.artefact import ArtefactError, detect
from batch_handler.engines import Tokens, choose, exported, manifest
from batch_handler.engines.eager import Eager
from batch_handler.engines.openvino_runtime import OpenVino
from batch_handler.request import Record
from batch_handler.settings import SettingError
from models import encoders, heads
from models.language import opinions, sentences
from running import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import exporting

EXACT = 1e-5
ROUNDED_ALONE = 2e-6
"""How far a rounded answer may be from itself in other company: sums of attention come out in another order."""

CALIBRATE, VERIFY = ([json.dumps({"inputs": text}).encode() for text in opinions(60, seed=seed)[0]] for seed in (1, 2))

pytestmark = pytest.mark.usefixtures("single_threaded")
Export = Callable[..., Path]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Export]:
    """An artefact with its engine: by what saved it, the engine and the precision; made once."""
    made: dict[tuple[Any, ...], Path] = {}

    def find(
        save: Callable[..., Path], *arguments: str, engine: str = "openvino", precision: str = "fp32", task: str | None = None
    ) -> Path:
        key = (save, *arguments, engine, precision)
        if key not in made:
            directory = save(tmp_path_factory.mktemp("exported") / "model", *arguments)
            wish = exporting.Wish(
                engine,
                precision,
                Path("calibrate.jsonl") if precision == "int8" else None,
                Path("verify.jsonl") if precision != "fp32" else None,
            )
            calibrate = list(enumerate(CALIBRATE, 1)) if wish.calibrate else []
            verify = list(enumerate(VERIFY, 1)) if wish.verify else []
            exporting.export(detect(directory, task), wish, calibrate, verify)
            made[key] = directory
        return made[key]

    yield find
    made.clear()


def encoder(directory: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(directory, dtype=torch.float32).eval()


def records(lengths: Sequence[int], seed: int = 0, types: bool = False) -> list[Tokens]:
    generator = random.Random(seed)
    made = []
    for length in lengths:
        cut = generator.randint(0, length) if types else length
        made.append(Tokens([generator.randrange(5, 300) for _ in range(length)], [0] * cut + [1] * (length - cut)))
    return made


def mixed(count: int, seed: int = 0) -> list[int]:
    """Unsorted lengths from 1 to the longest."""
    generator = random.Random(seed)
    return [1, encoders.LONGEST, *(generator.randint(1, encoders.LONGEST) for _ in range(count))][:count]


def hidden(engine: Any, batch: Sequence[Tokens]) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = engine.hidden(batch)
    return result


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max())


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
@pytest.mark.parametrize("architecture", encoders.PACKABLE)
def test_every_architecture_that_packs_exports_and_gives_what_eager_gives(export: Export, architecture: str, engine: str) -> None:
    directory = export(encoders.save, architecture, engine=engine)
    model = encoder(directory)
    found = choose(model, "auto", head=False, directory=directory)
    assert (found.name, found.padded) == (engine, False)
    for count in (1, 3, 33):
        batch = records(mixed(count, count), count, types=architecture in ("bert", "electra"))
        assert far(hidden(found, batch), hidden(Eager(model), batch)) < EXACT


@pytest.mark.parametrize("count", [1, 2, 31, 64, 257])
@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_every_batch_size_gives_what_eager_gives(export: Export, engine: str, count: int) -> None:
    directory = export(encoders.save, "bert", engine=engine)
    model = encoder(directory)
    batch = records(mixed(count, count), count, types=True)
    assert far(hidden(choose(model, engine, head=False, directory=directory), batch), hidden(Eager(model), batch)) < EXACT


TEXTS = ["", *sentences(12, seed=9), " ".join(sentences(40, seed=10)), "a", "", *opinions(8)[0]]
PAIRED = {"query": TEXTS[1], "documents": TEXTS}
TASKS: dict[str, tuple[Callable[..., Path], tuple[str, ...], list[Record]]] = {
    "feature-extraction": (encoders.save, ("roberta",), [Record(text, 1) for text in TEXTS]),
    "sentence-embeddings": (encoders.save, ("modernbert",), [Record(text, 1) for text in TEXTS]),
    "sentence-similarity": (
        encoders.save,
        ("modernbert",),
        [Record({"source_sentence": TEXTS[1], "sentences": TEXTS}, 1), Record({"source_sentence": "a", "sentences": ["a"]}, 2)],
    ),
    "text-classification": (encoders.save, ("distilbert",), [Record(text, 1) for text in TEXTS]),
    "token-classification": (
        heads.save,
        ("electra", "TokenClassification"),
        [Record(text, 1, {"ignore_labels": []}) for text in TEXTS if text],
    ),
    "question-answering": (
        heads.save,
        ("bert", "QuestionAnswering"),
        [Record({"question": "who", "context": text}, 1) for text in TEXTS if text],
    ),
    "fill-mask": (heads.save, ("bert", "MaskedLM"), [Record(f"{text} [MASK]", 1) for text in TEXTS[:9]]),
    "zero-shot-classification": (
        lambda directory, architecture: heads.save(directory, architecture, "SequenceClassification", **NLI),
        ("bert",),
        [Record(text, 1, {"candidate_labels": ["good", "bad", "other"]}) for text in TEXTS if text],
    ),
    "text-ranking": (
        lambda directory, architecture: encoders.save(directory, architecture, num_labels=1),
        ("xlm-roberta",),
        [Record(PAIRED, 1), Record({"text": "a", "text_pair": TEXTS[2]}, 2)],
    ),
}
NLI = heads.NATURAL_LANGUAGE_INFERENCE


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
@pytest.mark.parametrize("task", TASKS)
def test_every_encoder_task_answers_as_with_eager(
    export: Export, settings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, task: str, engine: str
) -> None:
    save, arguments, asked = TASKS[task]
    directory = export(save, *arguments, engine=engine, task=task)
    plain, found = (tasks.load(task, directory, settings(BYOC_ENGINE=name)) for name in ("eager", "auto"))
    assert f"engine={engine}" in found.description
    passes = [part for record in plain.encode(asked) for part in record.passes]  # type: ignore[union-attr]
    expected = plain.run(passes)
    together = found.run(passes)
    assert len(together) == len(expected) == len(passes)
    for place, (one, other) in enumerate(zip(together, expected, strict=True)):
        assert numpy.abs(numpy.asarray(one) - numpy.asarray(other)).max(initial=0) < EXACT
        (alone,) = found.run([passes[place]])
        assert numpy.abs(numpy.asarray(alone) - numpy.asarray(other)).max(initial=0) < EXACT


@pytest.mark.parametrize("precision", ["bf16", "int8-weights", "int8"])
def test_a_rounded_answer_is_the_same_alone_and_in_any_company(export: Export, precision: str) -> None:
    directory = export(encoders.save_trained, precision=precision)
    engine = choose(encoder(directory), "auto", head=False, directory=directory)
    assert engine.name == f"openvino-{precision}"
    (record,) = records([17], seed=99)
    alone = hidden(engine, [record])
    for seed in range(6):
        neighbours = records([*mixed(3 + 5 * seed, seed), 17], seed)
        place = seed % (len(neighbours) + 1)
        batch = [*neighbours[:place], record, *neighbours[place:]]
        together = torch.split(hidden(engine, batch), [len(one.ids) for one in batch])[place]
        assert far(together, alone) < ROUNDED_ALONE


@pytest.mark.parametrize("precision", ["bf16", "int8-weights", "int8"])
def test_a_rounded_classifier_agrees_and_says_how_much(export: Export, settings: Callable[..., Any], precision: str) -> None:
    directory = export(encoders.save_trained, precision=precision)
    figures = json.loads((directory / "engine" / "manifest.json").read_text())
    assert figures["precision"] == precision
    assert figures["agreement"]["samples"] == len(VERIFY)
    assert figures["agreement"]["cosine"] >= 0.995
    plain, found = (tasks.load("text-classification", directory, settings(BYOC_ENGINE=name)) for name in ("packed", "auto"))
    asked = list(plain.encode([Record(text, 1) for text in opinions(64, seed=3)[0]]))
    expected, rounded = (numpy.stack(task.run(asked)) for task in (plain, found))  # type: ignore[arg-type]
    assert not numpy.array_equal(expected, rounded)
    assert (expected.argmax(1) == rounded.argmax(1)).mean() >= 0.98


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN emulates bf16 on CPUs with AVX-512 only")
def test_an_artefact_may_ask_for_bf16_of_torch_itself(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.engines.linear.multiplies_bf16", lambda: True)
    directory = export(encoders.save_trained, engine="packed", precision="bf16")
    figures = json.loads((directory / "engine" / "manifest.json").read_text())
    assert (figures["engine"], figures["precision"], figures["steps"]) == ("packed", "bf16", [])
    assert figures["agreement"]["cosine"] >= 0.999
    model = encoder(directory)
    assert choose(model, "auto", head=False, directory=directory).name == "packed-bf16"
    assert choose(model, "auto", head=False, directory=directory, precision="fp32").name == "packed"
    assert choose(model, "packed", head=False, directory=directory).name == "packed"
    with pytest.raises(SettingError, match="BYOC_PRECISION=int8 needs an engine in the artefact"):
        choose(model, "auto", head=False, directory=directory, precision="int8")


@pytest.mark.parametrize("engine", ["onnx", "packed"])
def test_a_precision_that_an_engine_has_not_is_refused_with_a_way_out(engine: str) -> None:
    with pytest.raises(exporting.ExportError, match=f"--engine {engine} has no int8: .*use --"):
        exporting.check(exporting.Wish(engine, "int8"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_two_threads_at_once_get_their_own_answers(export: Export, precision: str) -> None:
    directory = export(encoders.save_trained, precision=precision)
    engine = choose(encoder(directory), "auto", head=False, directory=directory, lanes=2)
    batches = [records(mixed(5 + seed % 7, seed), seed) for seed in range(30)]
    expected = [hidden(engine, batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            found = list(pool.map(lambda batch: hidden(engine, batch), batches))
            assert all(far(one, other) < ROUNDED_ALONE for one, other in zip(found, expected, strict=True))


def test_rows_have_few_lengths_and_little_filling() -> None:
    room = OpenVino("fp32", lanes=1).room
    lengths = {tokens: room(tokens) for tokens in range(1, 8_193)}
    assert all(tokens <= length <= max(tokens + 8, tokens * 17 / 16) for tokens, length in lengths.items())
    assert len({length for tokens, length in lengths.items() if tokens <= 1_024}) <= 90
    assert len(set(lengths.values())) <= 140


def test_the_engine_in_the_artefact_can_be_overridden_by_the_default_one(export: Export) -> None:
    directory = export(encoders.save, "bert")
    model = encoder(directory)
    assert choose(model, "packed", head=False, directory=directory).name == "packed"
    assert choose(model, "eager", head=False, directory=directory).name == "eager"
    assert choose(model, "auto", head=False, directory=directory, precision="bf16").name == "openvino-bf16"


@pytest.mark.parametrize(
    ("wanted", "precision", "said"),
    [
        ("onnx", "auto", "BYOC_ENGINE=onnx, but the engine in the artefact is openvino's"),
        ("auto", "int8", "BYOC_PRECISION=int8, but the artefact's engine/ is fp32"),
        ("packed", "int8", "BYOC_PRECISION=int8 needs an engine in the artefact"),
        ("eager", "bf16", "BYOC_ENGINE=eager computes in fp32 on the CPU"),
    ],
)
def test_what_the_artefact_does_not_bring_is_refused(export: Export, wanted: str, precision: str, said: str) -> None:
    directory = export(encoders.save, "bert")
    with pytest.raises(SettingError, match=said):
        choose(encoder(directory), wanted, head=False, directory=directory, precision=precision)


def test_an_engine_that_is_wanted_and_not_there_is_refused(tmp_path: Path) -> None:
    directory = encoders.save(tmp_path / "model", "bert", head=False)
    with pytest.raises(SettingError, match="the engine in the artefact is none: package the model with"):
        choose(encoder(directory), "openvino", head=False, directory=directory)


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_a_missing_library_is_named_with_its_build_argument(export: Export, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    directory = export(encoders.save, "bert", engine=engine)
    library = {"openvino": "openvino", "onnx": "onnxruntime"}[engine]
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"batch_handler.engines.{exported.RUNTIMES[engine]}", raising=False)
    with pytest.raises(SettingError, match=rf"needs {engine}, which is not in this image: .*--build-arg ENGINES={engine}'"):
        choose(encoder(directory), "auto", head=False, directory=directory)


def damaged(directory: Path, how: str) -> None:
    engine = directory / "engine"
    if how == "weights":
        encoders.save(directory, "bert", initializer_range=0.2)
    elif how == "manifest":
        (engine / "manifest.json").write_text('{"format": 1}')
    elif how == "format":
        (engine / "manifest.json").write_text('{"format": 2}')
    elif how == "no manifest":
        (engine / "manifest.json").unlink()
    elif how == "no piece":
        (engine / "piece-01.xml").unlink()
    elif how == "cut piece":
        (engine / "piece-01.xml").write_text("<net")
    else:
        piece = engine / "piece-01.bin"
        numbers = numpy.fromfile(piece, numpy.float32)
        numbers[(abs(numbers) > 1e-3) & (abs(numbers) < 10)] *= -0.5  # weights, and not whole numbers in between
        numbers.tofile(piece)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("weights", "was made from other weights than those beside it"),
        ("manifest", "does not describe an engine"),
        ("format", "is of format 2, and this image reads 1"),
        ("no manifest", "has no manifest.json"),
        ("no piece", "names piece-01.xml, which is not there"),
        ("cut piece", "made by openvino .* cannot be read here"),
        ("other numbers", "does not compute what its weights do"),
    ],
)
def test_a_damaged_engine_is_one_sentence_and_never_replaced_in_silence(
    export: Export, tmp_path: Path, how: str, said: str
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(export(encoders.save, "bert"), directory)
    damaged(directory, how)
    with pytest.raises(ArtefactError, match=said) as caught:
        choose(encoder(directory), "auto", head=False, directory=directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (("onnx", "int8", Path("a"), Path("b")), "answers would depend on their neighbours"),
        (("openvino", "int8", None, Path("b")), "needs --calibrate"),
        (("openvino", "int8", Path("a"), None), "needs --verify"),
        (("openvino", "fp32", Path("a"), None), "leave --calibrate out"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_before_anything_is_read(wish: tuple[Any, ...], said: str) -> None:
    with pytest.raises(exporting.ExportError, match=said):
        exporting.check(exporting.Wish(*wish))


def test_what_is_missing_for_exporting_comes_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(
        exporting.ExportError, match=r"openvino, nncf is not installed here: run .venv/bin/pip install .*openvino.txt"
    ):
        exporting.check(exporting.Wish("openvino", "int8", Path("a"), Path("b")))


def test_samples_that_were_calibrated_with_do_not_verify(tmp_path: Path) -> None:
    directory = encoders.save(tmp_path / "model")
    wish = exporting.Wish("openvino", "int8", Path("same.jsonl"), Path("same.jsonl"))
    lines = list(enumerate(CALIBRATE, 1))
    with pytest.raises(exporting.ExportError, match=r"every line of same\.jsonl was used to calibrate"):
        exporting.export(detect(directory), wish, lines, lines)


def test_a_model_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    directory = encoders.save(tmp_path / "model", "gpt2", head=False)
    with pytest.raises(exporting.ExportError, match="--engine is for encoders"):
        exporting.export(detect(directory, "text-generation"), exporting.Wish("openvino", "fp32"), [], [])


def test_the_manifest_is_read_back_as_it_was_written(export: Export) -> None:
    directory = export(encoders.save, "modernbert")
    found = manifest.find(directory)
    assert found is not None
    windows = [step.window for step in found.steps if isinstance(step, manifest.Attention)]
    assert windows == [None, 37]
    assert found.versions["openvino"]
    manifest.write(directory, found)
    assert manifest.find(directory) == found
