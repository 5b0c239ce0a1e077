"""Engines: packed gives what eager gives, for every record, whoever its neighbours are and whichever thread asks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from batch_handler.engines import Engine, Tokens, choose
from batch_handler.engines.attention import attend
from batch_handler.engines.eager import Eager
from batch_handler.engines.packed import Packed
from batch_handler.settings import SettingError
from models import encoders, heads

TOLERANCE = 1e-5
ARCHITECTURES = [name for name in encoders.CONFIGURATIONS if name != "gpt2"]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def model() -> Callable[..., Any]:
    """A model by architecture and head, built once."""
    built: dict[tuple[str, bool], Any] = {}

    def find(architecture: str, head: bool) -> Any:
        key = (architecture, head)
        if key not in built:
            built[key] = encoders.model(*key)
        return built[key]

    return find


def records(lengths: Sequence[int], seed: int = 0, vocabulary: int = 300, types: bool = False) -> list[Tokens]:
    generator = random.Random(seed)
    made = []
    for length in lengths:
        cut = generator.randint(0, length) if types else length
        made.append(Tokens([generator.randrange(5, vocabulary) for _ in range(length)], [0] * cut + [1] * (length - cut)))
    return made


def mixed(count: int, seed: int = 0) -> list[int]:
    """Unsorted lengths from 1 to the longest, with runs of equal ones in between."""
    generator = random.Random(seed)
    lengths = [generator.randint(1, encoders.LONGEST) for _ in range(count)]
    return [1, encoders.LONGEST, encoders.LONGEST, *lengths][:count] if count > 3 else lengths


def outputs(engine: Engine, head: bool, batch: Sequence[Tokens]) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = engine.logits(batch) if head else engine.hidden(batch)
    return result


def reference(model: Any, head: bool, record: Tokens) -> torch.Tensor:
    """The unchanged model on one record alone, called as its documentation shows."""
    inputs = {"input_ids": torch.tensor([record.ids]), "attention_mask": torch.ones((1, len(record.ids)), dtype=torch.long)}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.tensor([record.types])
    with torch.inference_mode():
        output = model(**inputs)
    result: torch.Tensor = output.logits if head else output.last_hidden_state[0]
    return result


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max())


@pytest.mark.parametrize("head", [False, True], ids=["hidden", "logits"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_record_gets_what_the_model_alone_gives_it(model: Callable[..., Any], architecture: str, head: bool) -> None:
    plain = model(architecture, head)
    batch = records(mixed(33), types=architecture in ("bert", "electra"))
    alone = torch.cat([reference(plain, head, record) for record in batch])
    for engine in (choose(plain, "auto", head), Eager(plain)):
        assert far(outputs(engine, head, batch), alone) < TOLERANCE


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering", "MaskedLM"])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "electra", "modernbert"])
def test_heads_that_judge_tokens_give_what_the_model_alone_gives(architecture: str, head: str, tmp_path: Path) -> None:
    heads.save(tmp_path, architecture, head)
    plain = getattr(transformers, f"AutoModelFor{head}").from_pretrained(tmp_path, dtype=torch.float32).eval()
    batch = records(mixed(17), types=architecture in ("bert", "electra"))
    rows = []
    for record in batch:
        inputs = {"input_ids": torch.tensor([record.ids])}
        if architecture in ("bert", "electra"):
            inputs["token_type_ids"] = torch.tensor([record.types])
        with torch.inference_mode():
            output = plain(**inputs)
        several = (output.start_logits, output.end_logits) if head == "QuestionAnswering" else None
        rows.append(output.logits[0] if several is None else torch.stack(several, -1)[0])
    alone = torch.cat(rows)
    chosen = choose(plain, "auto", head=True, per_token=True)
    assert not chosen.padded
    for engine in (chosen, Eager(plain)):
        with torch.inference_mode():
            assert far(engine.token_logits(batch), alone) < TOLERANCE
            assert far(engine.token_logits(batch, [5, 0, len(alone) - 1]), alone[[5, 0, len(alone) - 1]]) < TOLERANCE


@pytest.mark.parametrize("architecture", encoders.PACKABLE)
def test_these_architectures_run_without_padding(model: Callable[..., Any], architecture: str) -> None:
    for head in (False, True):
        engine = choose(model(architecture, head), "auto", head)
        assert (engine.name, engine.padded) == ("packed", False)
        assert choose(model(architecture, head), "packed", head).name == "packed"
        assert choose(model(architecture, head), "eager", head).name == "eager"


def test_an_architecture_that_does_not_fit_is_served_by_eager(model: Callable[..., Any]) -> None:
    for head in (False, True):
        plain = model("gpt2", head)
        engine = choose(plain, "auto", head)
        assert (engine.name, engine.padded) == ("eager", True)
        with pytest.raises(SettingError, match="BYOC_ENGINE=packed does not fit"):
            choose(plain, "packed", head)


@pytest.mark.parametrize("lengths", [[encoders.LONGEST, 3, 40], [encoders.LONGEST, encoders.LONGEST], [37, 38, 36, 1]])
def test_records_longer_than_a_sliding_window_are_right_too(model: Callable[..., Any], lengths: list[int]) -> None:
    plain = model("modernbert", False)
    batch = records(lengths)
    alone = torch.cat([reference(plain, False, record) for record in batch])
    assert far(outputs(Packed(plain), False, batch), alone) < TOLERANCE


@pytest.mark.parametrize("length", [1, 7, 64, 129, 300])
@pytest.mark.parametrize("window", [1, 5, 65, 200, 400])
def test_attention_within_a_window_is_attention_under_its_mask(length: int, window: int) -> None:
    torch.manual_seed(length)
    query, key, value = (torch.randn(2, 2 * length, 8) for _ in range(3))
    places = torch.arange(length)
    near = (places[:, None] - places[None, :]).abs() < window
    expected = [
        torch.nn.functional.scaled_dot_product_attention(*(t[:, part] for t in (query, key, value)), attn_mask=near)
        for part in (slice(0, length), slice(length, 2 * length))
    ]
    found = attend(query, key, value, [(2, length)], window=window)
    assert far(found, torch.cat(expected, 1).transpose(0, 1).reshape(2 * length, -1)) < TOLERANCE


def test_a_head_that_takes_the_mean_of_all_tokens_is_shown_all(model: Callable[..., Any]) -> None:
    plain = encoders.model("modernbert", True, classifier_pooling="mean")
    engine = choose(plain, "packed", head=True)
    batch = records([9, 1, encoders.LONGEST, 9, 40])
    alone = torch.cat([reference(plain, True, record) for record in batch])
    assert far(outputs(engine, True, batch), alone) < TOLERANCE


@pytest.mark.parametrize("count", [1, 2, 3, 31, 64, 257])
@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_packed_equals_eager_at_every_batch_size(model: Callable[..., Any], architecture: str, count: int) -> None:
    plain = model(architecture, True)
    packed, eager = Packed(plain), Eager(plain)
    batch = records(mixed(count, seed=count))
    for head in (False, True):
        assert far(outputs(packed, head, batch), outputs(eager, head, batch)) < TOLERANCE


@pytest.mark.parametrize("architecture", encoders.PACKABLE)
def test_neighbours_do_not_change_a_record(model: Callable[..., Any], architecture: str) -> None:
    engine = Packed(model(architecture, True))
    (record,) = records([17], seed=99)
    alone = outputs(engine, True, [record])[0]
    for seed in range(5):
        neighbours = records([*mixed(6, seed), 17, 17], seed)
        place = seed % (len(neighbours) + 1)
        together = outputs(engine, True, [*neighbours[:place], record, *neighbours[place:]])
        assert far(together[place], alone) < TOLERANCE


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta"])
def test_a_padding_token_spelt_out_in_a_text_is_no_reason_to_differ(model: Callable[..., Any], architecture: str) -> None:
    plain = model(architecture, False)
    batch = [Tokens([0, 1, 9, 1, 1, 12, 2], [0] * 7), Tokens([0, 9, 12, 2], [0] * 4), Tokens([1], [0])]
    alone = torch.cat([reference(plain, False, record) for record in batch])
    assert far(outputs(Packed(plain), False, batch), alone) < TOLERANCE


EMULATED = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN emulates bf16 on CPUs with AVX-512 only"
)


@pytest.fixture
def amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that multiplies in bf16; any with AVX-512 computes the same, only slower."""
    monkeypatch.setattr("batch_handler.engines.linear.multiplies_bf16", lambda: True)


@EMULATED
@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("architecture", encoders.PACKABLE)
def test_in_bf16_a_record_gets_nearly_the_exact_answer_and_the_same_in_any_company(
    model: Callable[..., Any], architecture: str
) -> None:
    plain = model(architecture, True)
    engine = choose(plain, "auto", True, precision="bf16")
    assert (engine.name, engine.padded) == ("packed-bf16", False)
    (record,) = records([17], seed=99)
    exact, alone = outputs(Eager(plain), False, [record]), outputs(engine, False, [record])
    assert alone.dtype is torch.float32
    assert not torch.equal(alone, exact)
    assert float(torch.nn.functional.cosine_similarity(alone, exact, dim=1).min()) > 0.999
    for seed in range(5):
        batch = [record, *records([*mixed(20, seed), 17], seed)]
        assert far(outputs(engine, False, batch)[:17], alone) < 2e-6


def test_bf16_is_refused_where_it_does_not_pay_or_fit(model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.engines.linear.multiplies_bf16", lambda: False)
    with pytest.raises(SettingError, match="BYOC_PRECISION=bf16 needs a CPU with AMX"):
        choose(model("bert", False), "auto", False, precision="bf16")
    monkeypatch.setattr("batch_handler.engines.linear.multiplies_bf16", lambda: True)
    with pytest.raises(SettingError, match="BYOC_PRECISION=bf16 does not fit GPT2Model"):
        choose(model("gpt2", False), "auto", False, precision="bf16")


def test_the_weights_are_shared_and_the_model_is_left_as_it_was(model: Callable[..., Any]) -> None:
    plain = model("bert", True)
    before = plain.config.to_dict()
    implementation = plain.config._attn_implementation
    packed = Packed(plain)
    assert plain.config.to_dict() == before
    assert plain.config._attn_implementation == implementation
    assert {tensor.data_ptr() for tensor in packed._base.parameters()} <= {tensor.data_ptr() for tensor in plain.parameters()}


@pytest.mark.parametrize("head", [False, True], ids=["hidden", "logits"])
def test_two_threads_at_once_get_their_own_answers(model: Callable[..., Any], head: bool) -> None:
    engine = Packed(model("bert", True))
    batches = [records(mixed(5 + seed % 7, seed), seed) for seed in range(40)]
    expected = [outputs(engine, head, batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            found = list(pool.map(lambda batch: outputs(engine, head, batch), batches))
            assert all(far(one, other) < TOLERANCE for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert"])
def test_an_artefact_read_back_from_disk_packs_as_well(
    artefact: Callable[..., Path], model: Callable[..., Any], architecture: str
) -> None:
    from transformers import AutoModelForSequenceClassification

    loaded = AutoModelForSequenceClassification.from_pretrained(artefact(architecture), dtype=torch.float32).eval()
    engine = choose(loaded, "packed", head=True)
    batch = records([9, 2, 30])
    assert far(outputs(engine, True, batch), outputs(Eager(model(architecture, True)), True, batch)) < TOLERANCE
