"""question-answering finds the likeliest span, by an independent count over all spans, in one window and in many.

The rules are those of the Hugging Face pipeline of version 4, which version 5 dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asking import answers, asked
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task
from models import heads
from models.encoders import LONGEST
from models.language import sentences, stories

TOLERANCE = 1e-5
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, or the trained reader, built once."""
    built: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in built:
            path = tmp_path_factory.mktemp(name) / "model"
            built[name] = heads.save_reader(path) if name == "reader" else heads.save(path, name, "QuestionAnswering")
        return built[name]

    return find


@pytest.fixture(scope="module")
def task(directory: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over an artefact, loaded once."""
    return lambda name="reader": loaded("question-answering", directory(name))


def pair(question: str, context: str) -> dict[str, str]:
    return {"question": question, "context": context}


def whole_words(context: str, start: int, end: int, seen: tuple[int, int]) -> tuple[int, int]:
    """Widened as far as the window has seen. Contexts of the reference hold letters and single spaces only."""
    while start > seen[0] and context[start - 1] != " ":
        start -= 1
    while end < seen[1] and context[end] != " ":
        end += 1
    return start, end


def likeliest(directory: Path, question: str, context: str, longest: int = 15, window: int = LONGEST, stride: int = 32) -> Any:
    """The best answer by trying every span of every window, one window at a time through the plain model."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForQuestionAnswering.from_pretrained(directory).eval()
    batch = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=window,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    sums: dict[tuple[int, int, str], float] = {}
    texts: dict[str, tuple[int, int, str]] = {}
    for row in range(len(batch["input_ids"])):
        inputs = {name: torch.tensor([batch[name][row]]) for name in tokenizer.model_input_names}
        with torch.inference_mode():
            output = model(**inputs)
        sequence = batch.sequence_ids(row)
        judged = torch.tensor([place == 0 or which == 1 for place, which in enumerate(sequence)])
        start, end = (
            torch.where(judged, logits[0], torch.tensor(-10_000.0)).softmax(0)
            for logits in (output.start_logits, output.end_logits)
        )
        inside = [place for place, which in enumerate(sequence) if which == 1]
        spans = [
            (float(start[first] * end[last]), first, last)
            for first in inside
            for last in inside
            if first <= last < first + longest
        ]
        for score, first, last in sorted(spans, reverse=True)[:12]:
            offsets = batch["offset_mapping"][row]
            seen = offsets[inside[0]][0], offsets[inside[-1]][1]
            place = whole_words(context, offsets[first][0], offsets[last][1], seen)
            text = context[place[0] : place[1]]
            key = texts.setdefault(text, (*place, text))
            sums[key] = sums.get(key, 0.0) + score
    (first, last, text), score = max(sums.items(), key=lambda item: item[1])
    return {"score": pytest.approx(score, abs=TOLERANCE), "start": first, "end": last, "answer": text}


def test_the_trained_model_finds_people_and_places(task: Callable[..., Task]) -> None:
    told = stories(200, seed=99)
    right = 0
    for kind, question in heads.QUESTIONS.items():
        found = answers(task(), [pair(question, story.text) for story in told])
        right += sum(answer["answer"] == story.named(kind) for answer, story in zip(found, told, strict=True))
    assert right >= 350  # of 400; how many exactly is up to the processor it was trained on


@pytest.mark.parametrize("name", ["reader", "bert", "distilbert", "electra"])
def test_the_answer_is_the_likeliest_of_all_spans(task: Callable[..., Task], directory: Find, name: str) -> None:
    contexts = [story.text for story in (*stories(6, seed=3), *stories(4, seed=4, shortest=60, longest=120))]
    question = heads.QUESTIONS["LOC"]
    for context, answer in zip(contexts, answers(task(name), [pair(question, one) for one in contexts]), strict=True):
        assert answer == likeliest(directory(name), question, context)
        assert context[answer["start"] : answer["end"]] == answer["answer"]


def test_a_long_context_is_read_in_windows_that_are_planned_apart(task: Callable[..., Task]) -> None:
    story = stories(1, seed=8, shortest=150, longest=150)[0]
    (record,) = task().encode([Record(pair("who travels", story.text), 1)])
    assert isinstance(record, Encoded)
    assert len(record.passes) > 3
    assert max(part.length for part in record.passes) <= LONGEST
    assert not record.truncated


def test_window_overlap_and_answer_length_are_the_callers(task: Callable[..., Task], directory: Find) -> None:
    story = stories(1, seed=9, shortest=80, longest=80)[0]
    inputs = pair("who travels", story.text)
    found = answers(task("bert"), [inputs], {"max_seq_len": 30, "doc_stride": 7, "max_answer_len": 3})
    assert found == [likeliest(directory("bert"), "who travels", story.text, longest=3, window=30, stride=7)]


def test_top_k_gives_a_list_by_falling_score(task: Callable[..., Task]) -> None:
    story = stories(1, seed=10)[0]
    (best,), (several,) = (answers(task(), [pair("who travels", story.text)], parameters) for parameters in ({}, {"top_k": 4}))
    assert len(several) == 4
    assert several[0]["answer"] == best["answer"]
    assert [one["score"] for one in several] == sorted((one["score"] for one in several), reverse=True)
    assert len({one["answer"].lower() for one in several}) == 4


def test_no_answer_can_be_an_answer(task: Callable[..., Task]) -> None:
    story = stories(1, seed=11)[0]
    (found,) = answers(task("bert"), [pair("who travels", story.text)], {"handle_impossible_answer": True, "top_k": 500})
    nothing = [one for one in found if one["answer"] == ""]
    assert len(nothing) == 1
    assert (nothing[0]["start"], nothing[0]["end"]) == (0, 0)
    assert 0 < nothing[0]["score"] < 1


def test_neighbours_change_nothing(task: Callable[..., Task]) -> None:
    records = [
        Record(pair("where to", text), number, {"top_k": number % 3 + 1}) for number, text in enumerate(sentences(20, seed=2), 1)
    ]
    together = asked(task("roberta"), records)
    for record, answer in zip(records, together, strict=True):
        (alone,) = asked(task("roberta"), [record])
        ours, theirs = ([one] if isinstance(one, dict) else one for one in (alone, answer))
        assert [one["answer"] for one in ours] == [one["answer"] for one in theirs]
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in theirs], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("inputs", "parameters", "words"),
    [
        ("who", {}, "must be an object with the texts 'question' and 'context'"),
        ({"question": "who"}, {}, "must be an object"),
        ({"question": "who", "context": 5}, {}, "must be an object"),
        ({"question": "who", "context": "kami", "id": 1}, {}, "must be an object"),
        (pair("who", "  "), {}, "the context is empty"),
        (pair("", "kami"), {}, "the question is empty"),
        (pair("kami " * 80, "kami"), {}, "leaves no room for the context"),
        (pair("who", "kami"), {"max_seq_len": 20, "doc_stride": 19}, "'doc_stride' must be less than"),
        (pair("who", "kami"), {"topk": 1}, "the parameter 'topk' is unknown"),
        (pair("who", "kami"), {"top_k": 0}, "must be a whole number from 1"),
        (pair("who", "kami"), {"max_seq_len": LONGEST + 1}, f"from 1 to {LONGEST}"),
    ],
)
def test_what_cannot_be_asked_is_that_records_error(
    task: Callable[..., Task], inputs: Any, parameters: dict[str, Any], words: str
) -> None:
    bad, good = asked(task(), [Record(inputs, 1, parameters), Record(pair("who", "kami"), 2)])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message
    assert good["answer"] == "kami"
