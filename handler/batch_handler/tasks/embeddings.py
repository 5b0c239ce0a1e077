"""Sentence embeddings: one vector per text, pooled as the artefact's own sentence-transformers files say.

Sources: the model-directory layout of sentence-transformers (modules.json and one folder per module).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from batch_handler.artefact import ArtefactError, read_json, read_json_list
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import ReadTexts, encode_parts, encode_texts
from batch_handler.tasks.parameters import boolean, text
from batch_handler.tasks.tokenisation import single_text

Vector = numpy.ndarray[Any, Any]
PARAMETERS = {"truncation": boolean(), "prompt": text(), "prompt_name": text()}

POOLING: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.amax(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / states.shape[0] ** 0.5,
    "weightedmean": lambda states: _weighted_mean(states),
    "lasttoken": lambda states: states[-1],
}
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Tanh": torch.tanh,
    "Identity": lambda tensor: tensor,
    "ReLU": torch.relu,
    "GELU": torch.nn.functional.gelu,
}
Step = Callable[[torch.Tensor], torch.Tensor]


class Embeddings(EncoderTask):
    """Texts to vectors. Holds the encoder, the pooling modes and the steps after pooling."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv", "npy")
    layout = Layout(columns=lambda vector: vector, line=str)
    result_keys = ()

    def __init__(self, directory: Path, settings: Settings) -> None:
        modules = _modules(directory)
        folders = dict(modules)
        transformer = directory / folders.get("Transformer", "")
        own = read_json(transformer / "sentence_bert_config.json") if _exists(transformer, "sentence_bert_config.json") else {}
        self._load(AutoModel, transformer, settings, head=False, own_limit=own.get("max_seq_length"))
        self._lower = bool(own.get("do_lower_case"))
        self._prompts, self._default_prompt = _prompts(directory)
        self._pooling = _pooling(directory / folders["Pooling"]) if "Pooling" in folders else ("mean",)
        self._steps = _steps(directory, modules)

    @property
    def description(self) -> str:
        """Engine, pooling and length."""
        return f"engine={self._engine.name} pooling={'+'.join(self._pooling)} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Prompt and tokenise."""
        return encode_texts(records, self._tokeniser, PARAMETERS, self._truncation, self._text)

    def encode_several(self, records: Sequence[Record], read: ReadTexts) -> list[Encoded | ServiceError]:
        """The same for records of several texts each: every text is a part."""
        return encode_parts(records, self._tokeniser, PARAMETERS, self._truncation, read)

    def run(self, records: Sequence[Encoded]) -> Sequence[Vector]:
        """One vector per record: records × dimensions, float32."""
        with torch.inference_mode():
            states = self._engine.hidden([record.model_input for record in records])
            each = torch.split(states, [record.length for record in records])
            pooled = torch.stack([torch.cat([POOLING[mode](rows) for mode in self._pooling]) for rows in each])
            for step in self._steps:
                pooled = step(pooled)
        return list(pooled.cpu().numpy())

    def decode(self, output: Vector, record: Encoded) -> Vector:
        """The vector itself: formats write NumPy without a detour."""
        return output

    def samples(self) -> Sequence[Record]:
        """Short and long texts."""
        return [Record("warm " * words, 1) for words in (1, 8, 64)]

    def _text(self, record: Record, parameters: Mapping[str, Any]) -> str:
        return self.prompted(single_text(record), parameters)

    def prompted(self, text: str, parameters: Mapping[str, Any]) -> str:
        """The text as the model reads it: behind its prompt, in the case that it was trained on.

        Raises ServiceError (400) for a prompt that the artefact does not name.
        """
        prompt = parameters.get("prompt")
        name = parameters.get("prompt_name", self._default_prompt)
        if prompt is None and name is not None:
            if name not in self._prompts:
                known = ", ".join(sorted(self._prompts)) or "none"
                raise invalid_record(f"the prompt {quote(name)} is unknown: this model has {known}")
            prompt = self._prompts[name]
        text = (prompt or "") + text
        return text.lower() if self._lower else text


def load(directory: Path, settings: Settings, name: str) -> Embeddings:
    """The task for a sentence-transformers directory (or a plain encoder, pooled by the mean)."""
    return Embeddings(directory, settings)


def _exists(directory: Path, name: str) -> bool:
    return (directory / name).is_file()


def _modules(directory: Path) -> list[tuple[str, str]]:
    """Module classes with their folders in order, from modules.json; raises ArtefactError for one that is not supported."""
    if not _exists(directory, "modules.json"):
        return []
    listed = read_json_list(directory / "modules.json")
    modules = [(str(entry["type"]).rpartition(".")[2], str(entry["path"])) for entry in listed]
    unsupported = {kind for kind, _ in modules} - {"Transformer", "Pooling", "Dense", "Normalize"}
    if unsupported:
        raise ArtefactError(f"modules.json names {', '.join(sorted(unsupported))}, which this image does not run")
    return modules


def _prompts(directory: Path) -> tuple[Mapping[str, str], str | None]:
    if not _exists(directory, "config_sentence_transformers.json"):
        return {}, None
    config = read_json(directory / "config_sentence_transformers.json")
    return config.get("prompts") or {}, config.get("default_prompt_name")


def _pooling(directory: Path) -> tuple[str, ...]:
    config = read_json(directory / "config.json")
    if config.get("include_prompt") is False:
        raise ArtefactError("the pooling leaves prompts out (include_prompt is false), which this image does not run")
    named = config.get("pooling_mode")
    named = [named] if isinstance(named, str) else list(named or [])
    modes = tuple(named or [mode for key, mode in POOLING_KEYS.items() if config.get(key)])
    if not modes or set(modes) - set(POOLING):
        raise ArtefactError(f"{directory.name}/config.json names no pooling mode that this image runs")
    return modes


def _steps(directory: Path, modules: Sequence[tuple[str, str]]) -> list[Step]:
    steps: dict[str, Callable[[Path], Step]] = {"Dense": _dense, "Normalize": lambda _: _normalize}
    return [steps[kind](directory / path) for kind, path in modules if kind in steps]


def _dense(directory: Path) -> Step:
    config = read_json(directory / "config.json")
    weights = (
        load_file(directory / "model.safetensors")
        if _exists(directory, "model.safetensors")
        else torch.load(directory / "pytorch_model.bin", map_location="cpu", weights_only=True)
    )
    named = str(config.get("activation_function", "Identity")).rpartition(".")[2]
    sources = {config.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    if named not in ACTIVATIONS or config.get("use_residual") or sources != {"sentence_embedding"}:
        raise ArtefactError(f"{directory.name}/config.json asks for a dense layer that this image does not run")
    activation = ACTIVATIONS[named]
    weight, bias = weights["linear.weight"].float(), weights.get("linear.bias")
    return lambda pooled: activation(
        torch.nn.functional.linear(pooled, weight.to(pooled.device), None if bias is None else bias.float().to(pooled.device))
    )


def _normalize(pooled: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(pooled, p=2, dim=1)


def _weighted_mean(states: torch.Tensor) -> torch.Tensor:
    weights = torch.arange(1, states.shape[0] + 1, device=states.device, dtype=states.dtype).unsqueeze(1)
    return (states * weights).sum(0) / weights.sum()
