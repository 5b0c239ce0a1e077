"""Tiny models of pictures with their processors, and pictures to show them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from PIL import Image
from transformers import ConvNextConfig, ResNetConfig, ViTConfig

LABELS = {index: f"L{index}" for index in range(7)}


def _processor(family: str) -> Any:
    """The image processor that works on Pillow's pictures; version 4 of transformers has only that and no suffix."""
    name = f"{family}ImageProcessorPil"
    return getattr(transformers, name) if hasattr(transformers, name) else getattr(transformers, f"{family}ImageProcessor")


def _vit() -> tuple[Any, Any]:
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.15,
    )
    return config, _processor("ViT")(size={"height": 32, "width": 32})


def _resnet() -> tuple[Any, Any]:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return config, _processor("ConvNext")(size={"shortest_edge": 32}, crop_pct=0.875)


def _convnext() -> tuple[Any, Any]:
    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, initializer_range=0.15)
    return config, _processor("ConvNext")(size={"shortest_edge": 32}, crop_pct=0.875)


CONFIGURATIONS: Mapping[str, Callable[[], tuple[Any, Any]]] = {"vit": _vit, "resnet": _resnet, "convnext": _convnext}


def save(directory: Path, architecture: str = "vit", head: bool = True) -> Path:
    """An artefact: config.json, weights and preprocessor_config.json."""
    config, processor = CONFIGURATIONS[architecture]()
    config.id2label, config.label2id = LABELS, {label: index for index, label in LABELS.items()}
    torch.manual_seed(23)
    kind = transformers.AutoModelForImageClassification if head else transformers.AutoModel
    kind.from_config(config).eval().save_pretrained(directory)
    processor.save_pretrained(directory)
    return directory


def pixels(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """Coloured blocks."""
    blocks = numpy.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=numpy.uint8)
    return Image.fromarray(blocks).resize((width, height), Image.Resampling.NEAREST)


def encoded(picture: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """A picture as a file's bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()
