"""Sequence-to-sequence tasks equal `generate` run alone on each record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_handler.errors import ServiceError
from batch_handler.microbatch import Lanes, Report, plan
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models import translators
from models.language import sentences
from models.translators import LONGEST

TEXTS = sentences(12, seed=51, longest=14)
FIXED = ["bart", "t5", "marian"]
MANY = {"m2m100": ("en", "fr", "de"), "nllb": ("eng_Latn", "fra_Latn", "deu_Latn"), "mbart": ("en_XX", "fr_XX", "de_DE")}
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module")
def task(artefact: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over a translator, loaded once."""
    return lambda name, kind="translation": loaded(kind, artefact(name))


@pytest.fixture(scope="module")
def alone(artefact: Find) -> Callable[..., str]:
    """One text through the library itself, as its documentation shows."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    read: dict[str, Any] = {}

    def generate(name: str, text: str, **parameters: Any) -> str:
        if name not in read:
            model = AutoModelForSeq2SeqLM.from_pretrained(artefact(name)).eval()
            read[name] = AutoTokenizer.from_pretrained(artefact(name)), model
        tokenizer, model = read[name]
        source, target = parameters.pop("src_lang", None), parameters.pop("tgt_lang", None)
        if source or target:
            tokenizer = AutoTokenizer.from_pretrained(artefact(name), src_lang=source)
            code = f"__{target}__" if name == "m2m100" else target
            parameters["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(code)
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=LONGEST)
        with torch.inference_mode():
            produced = model.generate(**inputs, **parameters)
        return str(tokenizer.batch_decode(produced, skip_special_tokens=True)[0])

    return generate


def answers(task: Task, records: list[Record], budget: int = 200) -> list[Any]:
    """Encode, plan by group, run and decode, as the service does."""
    encoded = task.encode(records)
    good = [record for record in encoded if isinstance(record, Encoded)]
    batches = plan([record.length for record in good], budget, 1, task.padded, [record.group for record in good])
    outputs = iter(Lanes(1).run(batches, lambda indices: task.run([good[i] for i in indices]), len(good), Report()))
    return [record if isinstance(record, ServiceError) else task.decode(next(outputs), record) for record in encoded]


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 10},
        {"max_new_tokens": 8, "num_beams": 4},
        {"max_new_tokens": 12, "num_beams": 3, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 2},
        {"max_new_tokens": 9, "min_new_tokens": 5, "repetition_penalty": 1.7},
    ],
    ids=["greedy", "beams", "many", "minimum"],
)
def test_a_batch_gives_what_each_text_alone_gives(
    task: Callable[..., Task], alone: Callable[..., str], name: str, parameters: dict[str, Any]
) -> None:
    found = answers(task(name), [Record(text, number, parameters) for number, text in enumerate(TEXTS, 1)])
    expected = [alone(name, text, **parameters) for text in TEXTS]
    assert [answer["translation_text"] for answer in found] == expected
    assert len(set(expected)) > len(TEXTS) // 2


@pytest.mark.parametrize("name", MANY)
def test_languages_of_neighbours_do_not_mix(task: Callable[..., Task], alone: Callable[..., str], name: str) -> None:
    one, two, three = MANY[name]
    told: list[dict[str, str]] = [
        {"src_lang": one, "tgt_lang": two},
        {"src_lang": two, "tgt_lang": one},
        {"src_lang": three, "tgt_lang": two},
        {},
    ]
    records = [
        Record(text, number, {"max_new_tokens": 8, "num_beams": 2, **told[number % 4]}) for number, text in enumerate(TEXTS)
    ]
    expected = [alone(name, str(record.inputs), **record.parameters) for record in records]
    assert [answer["translation_text"] for answer in answers(task(name), records)] == expected
    assert [answer["translation_text"] for answer in answers(task(name), records[::-1])] == expected[::-1]


def test_a_language_told_by_one_record_is_forgotten_by_the_next(task: Callable[..., Task]) -> None:
    before, told, after = task("nllb").encode(
        [Record("kami", 1), Record("kami", 2, {"src_lang": "fra_Latn", "tgt_lang": "eng_Latn"}), Record("kami", 3)]
    )
    assert isinstance(before, Encoded)
    assert isinstance(told, Encoded)
    assert isinstance(after, Encoded)
    assert before.model_input == after.model_input != told.model_input


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"src_lang": "klingon", "tgt_lang": "klingon"}, "the language 'klingon' in 'src_lang' is unknown"),
        ({"src_lang": 5, "tgt_lang": 5}, "'src_lang' must be a text"),
        ({"src_lang": "<s>", "tgt_lang": "<s>"}, "the language '<s>' in 'src_lang' is unknown"),
    ],
)
def test_an_unknown_language_is_that_records_error(
    task: Callable[..., Task], name: str, parameters: dict[str, Any], words: str
) -> None:
    good, bad = task(name).encode([Record("a", 1), Record("b", 2, parameters)])
    assert isinstance(good, Encoded)
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message


@pytest.mark.parametrize("name", MANY)
def test_both_languages_go_together(task: Callable[..., Task], name: str) -> None:
    for missing in ("src_lang", "tgt_lang"):
        (bad,) = task(name).encode([Record("a", 1, {missing: MANY[name][0]})])
        assert isinstance(bad, ServiceError)
        assert "go together" in bad.message


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_length": 5}, "the parameter 'max_length' is unknown: this model takes do_sample"),
        ({"src_lang": "en", "tgt_lang": "fr"}, "the parameter 'src_lang' is unknown"),
        ({"max_new_tokens": 0}, f"must be a whole number from 1 to {LONGEST}"),
        ({"max_new_tokens": 10_000_000}, f"must be a whole number from 1 to {LONGEST}"),
        ({"num_beams": 33}, "must be a whole number from 1 to 32"),
        ({"num_beams": True}, "must be a whole number"),
        ({"temperature": 0}, "must be a number from 0.01 to 100"),
        ({"length_penalty": "2"}, "must be a number"),
        ({"logits_processor": []}, "is unknown"),
        ({"generation_config": {}}, "is unknown"),
    ],
)
def test_a_wrong_parameter_is_that_records_error(task: Callable[..., Task], parameters: dict[str, Any], words: str) -> None:
    good, bad = task("bart").encode([Record("a", 1), Record("b", 2, parameters)])
    assert isinstance(good, Encoded)
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message


@pytest.mark.parametrize("name", [*FIXED, *MANY])
def test_long_text_is_cut_as_the_library_cuts_it_or_refused_when_asked(
    task: Callable[..., Task], alone: Callable[..., str], name: str
) -> None:
    long = " ".join(TEXTS)
    parameters = {"max_new_tokens": 6}
    records = [Record(long, 1, parameters), Record(long, 2, {**parameters, "truncation": False}), Record("kami", 3, parameters)]
    cut, refused, _ = task(name).encode(records)
    assert isinstance(cut, Encoded)
    assert (cut.truncated, cut.length) == (True, LONGEST)
    assert isinstance(refused, ServiceError)
    assert f"longer than the model's {LONGEST} tokens" in refused.message
    assert answers(task(name), records)[0]["translation_text"] == alone(name, long, **parameters)


def test_records_of_other_parameters_are_of_another_group(task: Callable[..., Task]) -> None:
    told = [{}, {"num_beams": 2}, {"num_beams": 2, "truncation": True}, {"num_beams": 3}, {"max_new_tokens": 4}]
    encoded = task("bart").encode([Record("a", 1, some) for some in told])
    groups = [record.group for record in encoded if isinstance(record, Encoded)]
    assert len(groups) == 5
    assert groups[1] == groups[2]
    assert len(set(groups)) == 4


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("translation", "translation_text"),
        ("translation_en_to_fr", "translation_text"),
        ("summarization", "summary_text"),
        ("text2text-generation", "generated_text"),
    ],
)
def test_each_task_has_its_own_key(task: Callable[..., Task], kind: str, key: str) -> None:
    (answer,) = answers(task("bart", kind), [Record("kami", 1, {"max_new_tokens": 3})])
    assert list(answer) == [key]
    assert tuple(task("bart", kind).result_keys) == (key,)


def test_without_a_limit_generation_ends(task: Callable[..., Task]) -> None:
    (answer,) = answers(task("bart"), [Record("kami", 1)])
    assert isinstance(answer["translation_text"], str)


def test_inputs_that_are_no_text_are_that_records_error(task: Callable[..., Task]) -> None:
    for inputs in (None, 5, ["a"], {"text": "a"}):
        (bad,) = task("bart").encode([Record(inputs, 1)])
        assert isinstance(bad, ServiceError)
        assert bad.status == 400


def test_samples_can_be_run(task: Callable[..., Task]) -> None:
    for name in ("bart", "m2m100"):
        assert all(isinstance(answer, dict) for answer in answers(task(name), list(task(name).samples())))


def test_a_seeded_draw_is_the_same_alone_and_among_neighbours(task: Callable[..., Task]) -> None:
    drawn = {"do_sample": True, "temperature": 3.0, "max_new_tokens": 8}
    records = [Record(TEXTS[0], number + 1, {**drawn, "seed": number % 4}) for number in range(8)]
    together = answers(task("bart"), records)
    assert together[:4] == together[4:]
    assert len({str(result) for result in together}) > 1
    assert [answers(task("bart"), [record])[0] for record in records] == together


def test_beams_and_draws_do_not_go_together(task: Callable[..., Task]) -> None:
    (refused,) = task("bart").encode([Record("kami", 1, {"do_sample": True, "num_beams": 2})])
    assert isinstance(refused, ServiceError)
    assert "'num_beams' and 'do_sample'" in refused.message


def test_the_artefacts_own_way_of_drawing_holds_unless_told_otherwise(settings: Make, tmp_path: Path) -> None:
    translators.save_bart(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "do_sample": True, "top_k": 1}), "utf-8")
    own = load("translation", tmp_path, settings())
    drawn = answers(own, [Record(TEXTS[0], number, {"max_new_tokens": 8}) for number in range(1, 7)])
    assert drawn == answers(own, [Record(TEXTS[0], 1, {"max_new_tokens": 8, "do_sample": False})]) * 6
    told = {"max_new_tokens": 8, "top_k": 0, "temperature": 3.0}
    assert len({str(answer) for answer in answers(own, [Record(TEXTS[0], number, told) for number in range(6)])}) > 1
