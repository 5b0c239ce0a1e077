"""Decoding: rows that have ended leave the batch, the others' texts stay what they are alone, and one record can be streamed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, LogitsProcessorList, StoppingCriteriaList

from asking import answers, asked
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, generation, load
from models import decoders, translators
from models.language import sentences

Make = Callable[..., Settings]
PROMPTS = sentences(10, seed=4, longest=10)
MIXED = {"max_new_tokens": 30, "return_full_text": False}

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory, settings: Make) -> Task:
    """A model whose texts end early and late: its end token is one that it likes."""
    first = load("text-generation", decoders.save(tmp_path_factory.mktemp("plain") / "model"), settings())
    rows = first.run([record for record in encoded(first, MIXED) if isinstance(record, Encoded)])
    places = {token: [row.index(token) for row in rows if token in row] for token in set().union(*rows)}
    end = max(places, key=lambda token: len(set(places[token])))
    return load("text-generation", decoders.save(tmp_path_factory.mktemp("ending") / "model", eos_token_id=end), settings())


@pytest.fixture
def rows_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every forward pass."""
    seen: list[int] = []
    honest = LlamaForCausalLM.forward

    def forward(self: Any, input_ids: Any = None, **named: Any) -> Any:
        seen.append(len(input_ids))
        return honest(self, input_ids=input_ids, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    return seen


def encoded(task: Task, parameters: dict[str, Any]) -> list[Encoded | ServiceError]:
    return task.encode([Record(prompt, number, parameters) for number, prompt in enumerate(PROMPTS, 1)])


def test_ended_rows_leave_the_batch_and_the_others_go_on_as_alone(ending: Task, rows_seen: list[int]) -> None:
    assert "ended=dropped" in ending.description
    records = [record for record in encoded(ending, MIXED) if isinstance(record, Encoded)]
    together = ending.run(records)
    lengths = [len(row) for row in together]
    assert rows_seen == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(set(lengths)) > 3
    assert together == [ending.run([record])[0] for record in records]


def test_a_drawn_text_stays_the_same_when_its_neighbours_leave(ending: Task, rows_seen: list[int]) -> None:
    records = [
        Record(prompt, number, {**MIXED, "do_sample": True, "temperature": 1.5, "seed": number, "stop": ["a", "o"]})
        for number, prompt in enumerate(PROMPTS, 1)
    ]
    together = asked(ending, records)
    assert len(set(rows_seen)) > 2
    assert together == [asked(ending, [record])[0] for record in records]


def test_rows_that_stop_leave_too(ending: Task, rows_seen: list[int]) -> None:
    free = [answer["generated_text"] for answer in answers(ending, PROMPTS, MIXED)]
    stop = max(free, key=len)[4:6]
    rows_seen.clear()
    stopped = answers(ending, PROMPTS, {**MIXED, "stop": stop})
    assert [answer["generated_text"] for answer in stopped] == [text.partition(stop)[0] for text in free]
    assert rows_seen[-1] < rows_seen[0]


def test_a_model_whose_rows_cannot_leave_keeps_them(
    tmp_path: Path, settings: Make, monkeypatch: pytest.MonkeyPatch, ending: Task
) -> None:
    from transformers import DynamicCache

    monkeypatch.setattr(DynamicCache, "reorder_cache", lambda self, index: None)
    keeping = load("text-generation", decoders.save(tmp_path), settings())
    assert "together=any-lengths ended=kept" in keeping.description
    monkeypatch.undo()
    free = load("text-generation", tmp_path, settings())
    assert answers(keeping, PROMPTS, {**MIXED, "stop": "a"}) == answers(free, PROMPTS, {**MIXED, "stop": "a"})


def test_a_rule_that_remembers_the_first_rows_keeps_them(ending: Task, rows_seen: list[int]) -> None:
    from transformers import EncoderRepetitionPenaltyLogitsProcessor

    records = [record for record in encoded(ending, MIXED) if isinstance(record, Encoded)]
    inputs = ending._padded([record.model_input.ids for record in records])  # type: ignore[attr-defined]
    rule = EncoderRepetitionPenaltyLogitsProcessor(1.4, inputs["input_ids"])
    model: Any = ending._model  # type: ignore[attr-defined]
    told = {"max_new_tokens": 30, "pad_token_id": 1}
    found = generation.steps(model, inputs, LogitsProcessorList([rule]), StoppingCriteriaList(), told)
    rows = generation.rows(found, len(records))
    assert set(rows_seen) == {len(records)}
    assert len({len(row) for row in rows}) > 1


@pytest.mark.parametrize("name", ["bart", "t5", "marian", "m2m100"])
def test_a_translators_ended_rows_leave_and_the_others_go_on_as_alone(
    name: str, tmp_path: Path, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    save: Callable[[Path], Path] = getattr(translators, f"save_{name}")
    task: Any = load("translation", save(tmp_path), settings())
    probed = list(task.encode([Record(one, 1, {"max_new_tokens": 20}) for one in PROMPTS]))
    ends = [token for row in rows_of(task, probed) for token in row[2:6]]
    task._model.generation_config.eos_token_id = max(set(ends), key=ends.count)
    sizes: list[int] = []
    honest = type(task._model).forward

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        sizes.append(len(named["decoder_input_ids"]))
        return honest(self, *args, **named)

    monkeypatch.setattr(type(task._model), "forward", forward)
    together = task.run(probed)
    assert sizes[-1] < sizes[0] == len(PROMPTS)
    assert together == [task.run([record])[0] for record in probed]


def rows_of(task: Any, records: list[Encoded]) -> list[list[int]]:
    made: list[list[int]] = []
    honest = generation.rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "rows", lambda found, count: made.extend(honest(found, count)) or made)
        task.run(records)
    return made


STREAMED = [
    {"max_new_tokens": 25},
    {"max_new_tokens": 25, "do_sample": True, "temperature": 1.4, "seed": 3},
    {"max_new_tokens": 25, "repetition_penalty": 1.6},
    {"max_new_tokens": 25, "stop": ["an", "ka"]},
    {"max_new_tokens": 25, "stop_sequence": "a"},
    {"max_new_tokens": 1},
]


@pytest.mark.parametrize("parameters", STREAMED, ids=str)
def test_pieces_together_are_the_text_that_is_not_streamed(ending: Any, parameters: dict[str, Any]) -> None:
    whole = answers(ending, PROMPTS, {**parameters, "return_full_text": False})
    streams = ending.encode([Record(prompt, 1, {**parameters, "stream": True}) for prompt in PROMPTS])
    found = [list(ending.stream(record)) for record in streams]
    assert ["".join(pieces) for pieces in found] == [answer["generated_text"] for answer in whole]
    assert all(piece for pieces in found for piece in pieces)
    if parameters["max_new_tokens"] > 1:
        assert max(len(pieces) for pieces in found) > 3


def test_a_streamed_record_in_a_batch_gives_its_new_text_alone(ending: Task) -> None:
    (streamed, plain) = asked(
        ending, [Record("kami", 1, {"max_new_tokens": 4, "stream": True}), Record("kami", 2, {"max_new_tokens": 4})]
    )
    assert plain["generated_text"] == "kami" + streamed["generated_text"]


def test_a_piece_is_computed_when_it_is_asked_for(ending: Any, rows_seen: list[int]) -> None:
    (record,) = ending.encode([Record(PROMPTS[0], 1, {"max_new_tokens": 25, "min_new_tokens": 25, "stream": True})])
    stream: Iterator[str] = ending.stream(record)
    assert rows_seen == []
    next(stream)
    begun = len(rows_seen)
    assert begun < 10
    stream.close()  # type: ignore[attr-defined]
    assert len(rows_seen) == begun


def test_streams_beside_batches_and_each_other_change_nothing(ending: Any) -> None:
    parameters = {"max_new_tokens": 25, "do_sample": True, "seed": 5}
    records = ending.encode([Record(prompt, 1, {**parameters, "stream": True}) for prompt in PROMPTS[:4]])
    alone = ["".join(ending.stream(record)) for record in records]
    whole = ending.run(records)
    ready = threading.Barrier(5)

    def streamed(record: Encoded) -> str:
        ready.wait()
        return "".join(ending.stream(record))

    def batched() -> Any:
        ready.wait()
        return [ending.run(records) for _ in range(3)]

    with ThreadPoolExecutor(5) as pool:
        batches = pool.submit(batched)
        together = list(pool.map(streamed, records))
    assert together == alone
    assert batches.result() == [whole] * 3


def test_a_stream_leaves_the_threads_gradient_mode_as_it_was(ending: Any) -> None:
    (record,) = ending.encode([Record(PROMPTS[0], 1, {"max_new_tokens": 5, "stream": True})])
    for _ in ending.stream(record):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"stream": True, "num_beams": 2}, "'stream' and 'num_beams' do not go together"),
        ({"stream": True, "return_full_text": True}, "'stream' and 'return_full_text' do not go together"),
        ({"stream": "yes"}, "'stream' must be true or false"),
    ],
)
def test_what_cannot_be_streamed_is_that_records_error(ending: Task, parameters: dict[str, Any], said: str) -> None:
    bad, good = ending.encode([Record("kami", 1, parameters), Record("kami", 2, {"stream": False, "num_beams": 2})])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert said in bad.message
    assert isinstance(good, Encoded)
