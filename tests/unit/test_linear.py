"""Linear layers in the order of oneDNN's kernels: the same numbers, and the model they were taken from untouched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu
from transformers.activations import ACT2FN

from batch_handler.engines.linear import LONGEST_SUM, Reordered, Rounded, reorder, reorder_where_equal, rounded


class Feedforward(torch.nn.Module):
    """What BERT and its kin call an intermediate layer."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(48, 96)
        self.intermediate_act_fn = activation

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.intermediate_act_fn(self.dense(inputs))
        return found


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("shape", [(1, 1, 48), (1, 37, 48), (300, 48)])
def test_the_numbers_are_those_of_the_layer_and_its_activation(activation: str, shape: tuple[int, ...]) -> None:
    plain = Feedforward(ACT2FN[activation])
    reordered = copy.deepcopy(plain)
    reorder(reordered)
    assert isinstance(reordered.dense, Reordered)
    inputs = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(reordered(inputs), plain(inputs), atol=1e-5, rtol=1e-5)


def test_only_an_exact_gelu_is_computed_with_its_layer() -> None:
    for activation, joined in ((gelu, False), (torch.nn.GELU(), True), (torch.nn.GELU("tanh"), False), (ACT2FN["gelu"], True)):
        layer = Feedforward(activation)
        reorder(layer)
        assert isinstance(layer.intermediate_act_fn, torch.nn.Identity) is joined


def test_layers_without_a_bias_and_of_other_kinds() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2).bfloat16())
    first, *others = layers
    reorder(layers)
    assert isinstance(layers[0], Reordered)
    assert list(layers)[1:] == others, "what is not a linear layer in fp32 stays"
    inputs = torch.randn(5, 8)
    with torch.inference_mode():
        torch.testing.assert_close(layers[0](inputs), first(inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN emulates bf16 on CPUs with AVX-512 only")
@pytest.mark.parametrize("activation", ["gelu", "none"])
@pytest.mark.parametrize("inputs", [48, LONGEST_SUM, 1_000, 1_536])
def test_a_layer_in_bf16_is_near_and_gives_a_row_the_same_bits_with_any_others(inputs: int, activation: str) -> None:
    torch.manual_seed(inputs)
    plain, rows = torch.nn.Linear(inputs, 384), torch.randn(640, inputs)
    layer = Rounded(plain, activation)
    with torch.inference_mode():
        expected = gelu(plain(rows)) if activation == "gelu" else plain(rows)
        found = layer(rows)
        assert found.dtype is torch.bfloat16
        assert float((found - expected).norm() / expected.norm()) < 0.01
        for count in (1, 4, 36, 48, 128, 272, 512):
            assert torch.equal(layer(rows[:count]), found[:count])


class Touchy(torch.nn.Module):
    """A model that looks into its layers, as some architectures do."""

    def __init__(self, touched: bool) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 9)
        self._touched = touched

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._touched:
            self.inner.weight.div_(1.0)
        found: torch.Tensor = self.head(self.inner(inputs))
        return found


@pytest.mark.parametrize("touched", [False, True])
def test_a_model_that_computes_with_its_weights_keeps_its_layers(touched: bool) -> None:
    model, inputs = Touchy(touched).requires_grad_(False), torch.randn(3, 6)
    expected = model(inputs)
    reorder_where_equal(model, model.head, lambda: model(inputs))
    assert isinstance(model.inner, Reordered) is not touched
    assert type(model.head) is torch.nn.Linear
    torch.testing.assert_close(model(inputs), expected)


def test_few_numbers_of_tokens_reach_the_kernels() -> None:
    sizes = range(1, 1025)
    assert all(tokens <= rounded(tokens) <= max(tokens + 3, 1.11 * tokens) for tokens in sizes)
    assert len({rounded(tokens) for tokens in sizes}) <= 90
    assert rounded(rounded(5_000)) == rounded(5_000) >= 5_000
