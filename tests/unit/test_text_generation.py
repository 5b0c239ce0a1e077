"""text-generation equals the Hugging Face pipeline where it is greedy or beams, and draws from the model where it samples."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch

from asking import answers, asked
from batch_handler.errors import ServiceError
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Record, Request
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models import decoders
from models.decoders import LONGEST
from models.language import sentences

Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = [
    pytest.mark.usefixtures("single_threaded"),
    pytest.mark.filterwarnings("ignore:Using the model-agnostic default"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, built once."""
    built: dict[Any, Path] = {}

    def find(architecture: str = "llama", **options: Any) -> Path:
        key = (architecture, *sorted(options.items()))
        if key not in built:
            built[key] = decoders.save(tmp_path_factory.mktemp(architecture) / "model", architecture, **options)
        return built[key]

    return find


@pytest.fixture(scope="module")
def task(directory: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over an artefact, loaded once."""
    return lambda architecture="llama", **options: loaded("text-generation", directory(architecture, **options))


@pytest.fixture(scope="module")
def reference(directory: Find) -> Callable[..., Any]:
    """The pipeline, one text at a time and without drawing unless told."""
    from transformers import pipeline

    def find(architecture: str = "llama", **options: Any) -> Any:
        made = pipeline("text-generation", str(directory(architecture, **options)), device="cpu")
        return lambda text, **told: made(text, **{"do_sample": False, **told})[0]

    return find


PROMPTS = sentences(10, seed=4, longest=10)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 12},
        {"max_new_tokens": 1, "return_full_text": False},
        {"max_new_tokens": 8, "num_beams": 3},
        {"max_new_tokens": 8, "num_beams": 2, "length_penalty": 2.0, "early_stopping": True},
        {"max_new_tokens": 12, "repetition_penalty": 1.6},
        {"max_new_tokens": 8, "num_beams": 2, "length_penalty": -1},
        {"max_new_tokens": 12, "no_repeat_ngram_size": 2},
        {"max_new_tokens": 9, "min_new_tokens": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_answers_equal_the_pipelines(
    task: Callable[..., Task], reference: Callable[..., Any], architecture: str, parameters: dict[str, Any]
) -> None:
    theirs = [reference(architecture)(prompt, **parameters) for prompt in PROMPTS]
    assert answers(task(architecture), PROMPTS, parameters) == theirs


def test_padding_on_the_left_is_checked_at_load(task: Callable[..., Task]) -> None:
    for architecture in ("llama", "gpt2"):
        assert "together=any-lengths" in task(architecture).description
        groups = {record.group for record in task(architecture).encode([Record(one, 1) for one in PROMPTS])}  # type: ignore[union-attr]
        assert len(groups) == 1


def test_a_model_that_mixes_up_the_rows_of_a_batch_is_asked_one_by_one(
    task: Callable[..., Task], reference: Callable[..., Any]
) -> None:
    assert "together=none" in task("rwkv").description
    theirs = [reference("rwkv")(prompt, max_new_tokens=6) for prompt in PROMPTS]
    assert answers(task("rwkv"), PROMPTS, {"max_new_tokens": 6}) == theirs


@pytest.mark.parametrize(("disturbed", "company"), [("padding", "equal-lengths"), ("nothing", "any-lengths")])
def test_a_model_that_padding_disturbs_sees_only_equal_lengths_together(
    directory: Find, settings: Make, monkeypatch: pytest.MonkeyPatch, disturbed: str, company: str
) -> None:
    from transformers import LlamaForCausalLM

    honest = LlamaForCausalLM.forward

    def forward(self: Any, *args: Any, attention_mask: Any = None, **named: Any) -> Any:
        """As if it had never heard of padding."""
        return honest(self, *args, attention_mask=None if disturbed == "padding" else attention_mask, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    loaded = load("text-generation", directory(), settings())
    assert f"together={company}" in loaded.description
    encoded = [record for record in loaded.encode([Record(one, 1) for one in PROMPTS]) if isinstance(record, Encoded)]
    lengths = {record.length for record in encoded} if disturbed == "padding" else {None}
    assert len({record.group for record in encoded}) == len(lengths)


def test_a_whole_number_is_a_number_too(task: Callable[..., Task]) -> None:
    whole = {"max_new_tokens": 8, "repetition_penalty": 2}
    assert answers(task(), PROMPTS, whole) == answers(task(), PROMPTS, {**whole, "repetition_penalty": 2.0})


def test_rules_that_see_the_padding_meet_only_equal_lengths(task: Callable[..., Task]) -> None:
    encoded = task().encode([Record(one, 1, {"repetition_penalty": 1.3}) for one in PROMPTS])
    lengths = {record.length for record in encoded if isinstance(record, Encoded)}
    assert len({record.group for record in encoded if isinstance(record, Encoded)}) == len(lengths) > 1


def test_a_stop_sequence_ends_the_text_and_stays_in_it(
    task: Callable[..., Task], reference: Callable[..., Any], directory: Find
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory())
    parameters = {"max_new_tokens": 20, "return_full_text": False}
    free = [answer["generated_text"] for answer in answers(task(), PROMPTS, parameters)]
    stops = [free[0][6:9], free[3][10:12]]
    stopped = answers(task(), PROMPTS, {**parameters, "stop_sequence": stops})
    named = {"stop_strings": stops, "tokenizer": tokenizer}  # what transformers 5 makes of `stop_sequence`
    assert stopped == [reference()(prompt, **named, **parameters) for prompt in PROMPTS]
    assert len(stopped[0]["generated_text"]) < len(free[0])


def test_a_stop_ends_the_text_before_it(task: Callable[..., Task]) -> None:
    parameters = {"max_new_tokens": 20, "return_full_text": False}
    free = [answer["generated_text"] for answer in answers(task(), PROMPTS, parameters)]
    stops = [free[0][6:9], free[3][10:12]]
    stopped = [answer["generated_text"] for answer in answers(task(), PROMPTS, {**parameters, "stop": stops})]
    ends = [min(place for stop in stops if (place := (whole + stop).find(stop)) >= 0) for whole in free]
    assert stopped == [whole[:end] for whole, end in zip(free, ends, strict=True)]
    assert stopped[0] == free[0][:6]


def test_an_end_token_ends_a_row_and_not_its_neighbours(directory: Find, settings: Make, tmp_path: Path) -> None:
    plain = load("text-generation", directory(), settings())
    encoded = plain.encode([Record(one, 1, {"max_new_tokens": 12}) for one in PROMPTS])
    rows = plain.run([record for record in encoded if isinstance(record, Encoded)])
    ending = load("text-generation", decoders.save(tmp_path, eos_token_id=rows[0][3]), settings())
    short = ending.run(
        [one for one in ending.encode([Record(p, 1, {"max_new_tokens": 12}) for p in PROMPTS]) if isinstance(one, Encoded)]
    )
    for whole, cut in zip(rows, short, strict=True):
        end = whole.index(rows[0][3]) + 1 if rows[0][3] in whole else len(whole)
        assert list(cut) == list(whole)[:end]


def test_a_drawn_text_depends_on_its_seed_and_not_on_its_neighbours(task: Callable[..., Task]) -> None:
    records = [
        Record(prompt, number, {"do_sample": True, "temperature": 1.3, "top_p": 0.9, "seed": number, "max_new_tokens": 10})
        for number, prompt in enumerate(PROMPTS, 1)
    ]
    together = asked(task(), records)
    assert together == asked(task(), list(reversed(records)))[::-1]
    assert together == [asked(task(), [record])[0] for record in records]
    other = [Record(record.inputs, 1, {**record.parameters, "seed": 99}) for record in records]
    assert sum(one == two for one, two in zip(together, asked(task(), other), strict=True)) <= 1


def test_drawing_without_a_seed_differs_from_time_to_time(task: Callable[..., Task]) -> None:
    found = answers(task(), ["kami"] * 8, {"do_sample": True, "max_new_tokens": 10})
    assert len({answer["generated_text"] for answer in found}) > 4


def test_draws_follow_the_models_own_distribution(task: Callable[..., Task], directory: Find) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory())
    model = AutoModelForCausalLM.from_pretrained(directory()).eval()
    with torch.inference_mode():
        logits = model(**tokenizer("kami", return_tensors="pt")).logits[0, -1]
    best = logits.topk(3)
    expected = dict(zip(best.indices.tolist(), (best.values / 0.5).softmax(0).tolist(), strict=True))
    parameters = {"do_sample": True, "max_new_tokens": 1, "temperature": 0.5, "top_k": 3}
    encoded = task().encode([Record("kami", 1, {**parameters, "seed": seed}) for seed in range(2_000)])
    drawn = collections.Counter(row[0] for row in task().run([one for one in encoded if isinstance(one, Encoded)]))
    assert set(drawn) <= set(expected)
    for token, share in expected.items():
        assert drawn[token] / 2_000 == pytest.approx(share, abs=0.04)


def test_the_artefacts_own_generation_settings_hold_unless_told_otherwise(task: Callable[..., Task]) -> None:
    options = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 6}
    drawing = task("llama", **options)
    assert len({answer["generated_text"] for answer in answers(drawing, ["kami"] * 8)}) > 3
    told = {"do_sample": False, "max_new_tokens": 6}
    assert answers(drawing, PROMPTS, told) == answers(task(), PROMPTS, told)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "kami solten"}],
        [{"role": "system", "content": "miro"}, {"role": "user", "content": "kami"}],
        [{"role": "user", "content": "kami"}, {"role": "assistant", "content": "sol"}],
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_a_conversation_equals_the_pipelines(
    task: Callable[..., Task], reference: Callable[..., Any], messages: list[dict[str, str]], full: bool
) -> None:
    parameters = {"max_new_tokens": 8, "return_full_text": full}
    assert answers(task(chat=True), [messages], parameters) == [reference(chat=True)(messages, **parameters)]


def test_a_long_prompt_loses_its_beginning_or_is_refused(task: Callable[..., Task]) -> None:
    long = "kami solten " * 100 + "miro"
    parameters = {"max_new_tokens": 16, "return_full_text": False}
    cut, refused = task().encode([Record(long, 1, parameters), Record(long, 2, {**parameters, "truncation": False})])
    assert isinstance(cut, Encoded)
    assert (cut.truncated, cut.length) == (True, LONGEST - 16)
    assert isinstance(refused, ServiceError)
    assert "truncation is off" in refused.message
    assert len(task().run([cut])[0]) <= 16


def test_an_empty_prompt_starts_from_the_beginning_token(task: Callable[..., Task], reference: Callable[..., Any]) -> None:
    assert answers(task(), [""], {"max_new_tokens": 5}) == [reference()("", max_new_tokens=5)]


@pytest.mark.parametrize(
    ("inputs", "parameters", "said"),
    [
        (5, {}, "must be a text, or a list of messages"),
        ([], {}, "must be a text, or a list of messages"),
        ([{"role": "user", "content": "kami"}], {}, "no chat template"),
        ("kami", {"max_length": 5}, "the parameter 'max_length' is unknown"),
        ("kami", {"max_new_tokens": 0}, "must be a whole number from 1"),
        ("kami", {"max_new_tokens": LONGEST}, f"from 1 to {LONGEST - 1}"),
        ("kami", {"seed": -1}, "must be a whole number from 0"),
        ("kami", {"stop": [1]}, "must be a text or a list"),
        ("kami", {"do_sample": True, "num_beams": 2}, "do not go together"),
        ("kami", {"temperature": 0}, "must be a number from 0.01"),
    ],
)
def test_what_cannot_be_continued_is_that_records_error(
    task: Callable[..., Task], inputs: Any, parameters: dict[str, Any], said: str
) -> None:
    bad, good = asked(task(), [Record(inputs, 1, parameters), Record("kami", 2, {"max_new_tokens": 2})])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert said in bad.message
    assert good["generated_text"].startswith("kami")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_conversation_is_one_record_and_a_list_of_them_several(
    task: Callable[..., Task], settings: Make, wrapped: bool
) -> None:
    chat = [{"role": "user", "content": "kami"}]
    body = orjson.dumps({"inputs": [chat, chat] if wrapped else chat, "parameters": {"max_new_tokens": 2}})
    pipeline = Pipeline(task(chat=True), settings())
    (response,) = pipeline([Request("id", Headers([("content-type", "application/json")]), body)]).responses
    answer = orjson.loads(response.body)
    found = answer if wrapped else [answer]
    assert len(found) == 1 + wrapped
    assert all([message["role"] for message in one["generated_text"]] == ["user", "assistant"] for one in found)


def test_a_template_that_refuses_is_the_records_error(task: Callable[..., Task]) -> None:
    (bad,) = answers(task(chat=True), [[{"role": "wizard", "content": "kami"}]])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert "unknown role" in bad.message
