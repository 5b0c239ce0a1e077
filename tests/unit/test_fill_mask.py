"""fill-mask equals the Hugging Face pipeline: tokens and sequences identical, scores within 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import answers, asked
from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Task, load
from models import heads
from models.language import sentences, wordpiece

TOLERANCE = 1e-5
MASKS = {"bert": "[MASK]", "distilbert": "[MASK]", "electra": "[MASK]", "modernbert": "[MASK]", "roberta": "<mask>"}
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, built once."""
    built: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in built:
            built[name] = heads.save(tmp_path_factory.mktemp(name) / "model", name, "MaskedLM")
        return built[name]

    return find


@pytest.fixture(scope="module")
def task(directory: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over an artefact, loaded once."""
    return lambda name="bert": loaded("fill-mask", directory(name))


@pytest.fixture(scope="module")
def reference(directory: Find) -> Callable[[str], Any]:
    """The pipeline."""
    from transformers import pipeline

    return lambda name="bert": pipeline("fill-mask", str(directory(name)), device="cpu")


def masked(count: int, mask: str, masks: int = 1) -> list[str]:
    """Sentences some of whose words are masks."""
    texts = []
    for number, text in enumerate(sentences(count, seed=3, longest=12)):
        words = text.split()
        for place in range(masks):
            words.insert((number + 3 * place) % (len(words) + 1), mask)
        texts.append(" ".join(words))
    return texts


def agree(ours: Any, theirs: Any) -> None:
    """One list of proposals, or a list of such lists."""
    if isinstance(theirs[0], list):
        for one, other in zip(ours, theirs, strict=True):
            agree(one, other)
        return
    for key in ("token", "token_str", "sequence"):
        assert [entry[key] for entry in ours] == [entry[key] for entry in theirs]
    assert [entry["score"] for entry in ours] == pytest.approx([entry["score"] for entry in theirs], abs=TOLERANCE)


@pytest.mark.parametrize("masks", [1, 3])
@pytest.mark.parametrize("name", MASKS)
def test_answers_equal_the_pipelines(task: Callable[..., Task], reference: Callable[..., Any], name: str, masks: int) -> None:
    texts = masked(20, MASKS[name], masks)
    for ours, text in zip(answers(task(name), texts), texts, strict=True):
        agree(ours, reference(name)(text))


@pytest.mark.parametrize("top_k", [1, 3, 200])
def test_top_k_is_the_pipelines(task: Callable[..., Task], reference: Callable[..., Any], top_k: int) -> None:
    (ours,) = answers(task(), ["kami [MASK] solten"], {"top_k": top_k})
    assert len(ours) == top_k
    agree(ours, reference()("kami [MASK] solten", top_k=top_k))


@pytest.mark.parametrize("targets", ["splendid", ["splendid", "sour", "splendid"], ["unheardofword", "ka"]])
def test_targets_are_the_pipelines(task: Callable[..., Task], reference: Callable[..., Any], targets: Any) -> None:
    (ours,) = answers(task(), ["kami [MASK] solten"], {"targets": targets})
    agree(ours, reference()("kami [MASK] solten", targets=targets))


def test_neighbours_with_other_parameters_change_nothing(task: Callable[..., Task]) -> None:
    texts = masked(12, "[MASK]", 2)
    records = [Record(text, number, {"top_k": number}) for number, text in enumerate(texts, 1)]
    for record, together in zip(records, asked(task(), records), strict=True):
        agree(asked(task(), [record])[0], together)


def test_the_vocabulary_is_scored_at_the_masks_only(task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = task()._engine  # type: ignore[attr-defined]
    shapes = []
    whole = type(engine).token_logits

    def spied(self: Any, records: Any, kept: Any) -> Any:
        logits = whole(self, records, kept)
        shapes.append(logits.shape[0])
        return logits

    monkeypatch.setattr(type(engine), "token_logits", spied)
    answers(task(), masked(5, "[MASK]", 2))
    assert engine.name == "packed"
    assert shapes == [10]


def test_the_eager_engine_gives_the_same(directory: Find, settings: Make, task: Callable[..., Task]) -> None:
    eager = load("fill-mask", directory("bert"), settings(BYOC_ENGINE="eager"))
    texts = masked(12, "[MASK]", 2)
    for one, other in zip(answers(task(), texts), answers(eager, texts), strict=True):
        agree(one, other)


@pytest.mark.parametrize(
    ("inputs", "parameters", "words"),
    [
        ("kami", {}, "the text has no [MASK] to fill"),
        ("kami " * 100 + "[MASK]", {}, "no [MASK] to fill in the part that the model can read"),
        (5, {}, "must be a text"),
        ("[MASK]", {"top_k": None}, "must be a whole number from 1"),
        ("[MASK]", {"targets": []}, "must be a text or a list"),
        ("[MASK]", {"targets": [1]}, "must be a text or a list"),
        ("[MASK]", {"targets": ""}, "holds no token"),
        ("[MASK]", {"target": "a"}, "the parameter 'target' is unknown"),
    ],
)
def test_what_cannot_be_filled_is_that_records_error(
    task: Callable[..., Task], inputs: Any, parameters: dict[str, Any], words: str
) -> None:
    bad, good = asked(task(), [Record(inputs, 1, parameters), Record("[MASK]", 2)])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message
    assert len(good) == 5


def test_a_tokenizer_without_a_mask_is_told_at_start(settings: Make, tmp_path: Path) -> None:
    heads.save(tmp_path, "bert", "MaskedLM")
    tokenizer = wordpiece(64)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ArtefactError, match="no mask token"):
        load("fill-mask", tmp_path, settings())
