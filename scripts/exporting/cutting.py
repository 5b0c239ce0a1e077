"""An encoder cut at its attentions: the graph that torch.export traces over one row of tokens, in pieces that a library runs.

The attention function that is registered here only marks the place; what stands between two places works token by token.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from batch_handler.engines.manifest import Attention, Piece
from batch_handler.engines.packed import with_attention
from batch_handler.engines.rows import Layout

MARK = "byoc_mark"
TOKENS = 24
"""Of the row that is traced; every other length works as well."""
MOST_TOKENS = 1 << 20
ROW = ("ids", "positions", "types")


class CutError(Exception):
    """One sentence: why an encoder cannot be cut."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece with its graph and what was given to it in tracing."""

    piece: Piece
    graph: GraphModule
    example: tuple[torch.Tensor, ...]

    def program(self) -> torch.export.ExportedProgram:
        """For rows of any length."""
        tokens = torch.export.Dim("tokens", min=1, max=MOST_TOKENS)
        shapes = tuple({tensor.shape.index(TOKENS): tokens} for tensor in self.example)
        with quiet(), torch.no_grad():
            return torch.export.export(self.graph.eval(), self.example, dynamic_shapes=shapes, strict=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """The steps of an encoder in order, and the name of the hidden states among their outputs."""

    steps: tuple[Part | Attention, ...]
    output: str

    @property
    def parts(self) -> list[Part]:
        """The steps that a library runs."""
        return [step for step in self.steps if isinstance(step, Part)]

    @property
    def plan(self) -> tuple[Piece | Attention, ...]:
        """The steps as the manifest names them."""
        return tuple(step.piece if isinstance(step, Part) else step for step in self.steps)


@torch.library.custom_op("byoc::attend", mutates_args=())
def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int) -> torch.Tensor:
    """Marks an attention over 1 × tokens × heads × width; gives the shape that it will give, and no attention."""
    return query.new_ones((*query.shape[:2], query.shape[2] * value.shape[3]))


@_attend.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int) -> torch.Tensor:
    return query.new_empty((*query.shape[:2], query.shape[2] * value.shape[3]))


def _marked(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    laid = (tensor.transpose(1, 2) for tensor in (query, key, value))
    marked: torch.Tensor = torch.ops.byoc.attend(*laid, float(scale), sliding_window or 0)
    return marked.unflatten(-1, (query.shape[1], value.shape[3])), None  # type: ignore[no-untyped-call]  # not annotated there


ALL_ATTENTION_FUNCTIONS.register(MARK, _marked)
ALL_MASK_ATTENTION_FUNCTIONS.register(MARK, lambda *_, **__: None)


class _OverRow(torch.nn.Module):
    """An encoder as a function of a row."""

    def __init__(self, base: torch.nn.Module) -> None:
        super().__init__()
        self._base = base

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        given = {} if types is None else {"token_type_ids": types}
        states: torch.Tensor = self._base(input_ids=ids, position_ids=positions, **given).last_hidden_state
        return states[0]


def cut(model: Any, suffix: str) -> Cut:
    """The pieces of a model's encoder, for files that end in `suffix`. Raises CutError where the architecture does not fit."""
    name = type(model).__name__
    try:
        base = with_attention(model, MARK)
        layout = Layout.of(base)
        graph, example = _traced(base, layout)
    except Exception as error:  # noqa: BLE001 - any architecture may fail in its own way
        raise CutError(f"{name} cannot be exported ({type(error).__name__}): serve it with the default engine") from None
    marks = [node for node in graph.graph.nodes if _is(node, "byoc.attend")]
    if not marks:
        raise CutError(f"{name} does not take its attention from transformers' interface: serve it with the default engine")
    return _pieces(graph, marks, example, suffix)


def _traced(base: Any, layout: Layout) -> tuple[GraphModule, tuple[torch.Tensor, ...]]:
    ids = torch.arange(5, 5 + TOKENS).unsqueeze(0)
    example = [ids, torch.arange(TOKENS).unsqueeze(0) + layout.first_position]
    if layout.takes_types:
        example.append(torch.zeros_like(ids))
    tokens = torch.export.Dim("tokens", min=1, max=MOST_TOKENS)
    with quiet(), torch.no_grad():
        program = torch.export.export(
            _OverRow(base).eval(), tuple(example), dynamic_shapes=tuple({1: tokens} for _ in example), strict=False
        )
    return program.module(), tuple(example)


def _pieces(graph: GraphModule, marks: Sequence[Node], example: Sequence[torch.Tensor], suffix: str) -> Cut:
    """Divide the nodes by how many attentions precede them; what one piece computes and a later one needs crosses over."""
    _swept(graph.graph)
    stage: dict[Node, int] = {}
    passed = 0
    for node in graph.graph.nodes:
        stage[node] = passed
        passed += node in marks
    values = dict(zip(ROW, example, strict=False))
    steps: list[Part | Attention] = []
    for number in range(passed + 1):
        part = _part(graph, stage, marks, number, f"piece-{number:02}{suffix}", values)
        with torch.no_grad():
            values.update(zip(part.piece.outputs, part.graph(*part.example), strict=True))
        steps.append(part)
        if number < passed:
            attention = _attention(marks[number])
            values[attention.output] = _attend(*(values[name] for name in attention.inputs), attention.scale, 0)
            steps.append(attention)
    (output,) = next(node for node in graph.graph.nodes if node.op == "output").all_input_nodes
    return Cut(tuple(steps), output.name)


def _swept(graph: Graph) -> None:
    """Take out what only checks the inputs."""
    for node in list(graph.nodes):
        if not node.users and (node.op == "call_module" or _is(node, "_assert")):
            graph.erase_node(node)


def _part(
    graph: GraphModule,
    stage: Mapping[Node, int],
    marks: Sequence[Node],
    number: int,
    file: str,
    values: Mapping[str, torch.Tensor],
) -> Part:
    body = [node for node in graph.graph.nodes if stage[node] == number and _computes(node) and node not in marks]
    needed = dict.fromkeys(found for node in body for found in _from_before(node, stage, marks, number))
    copied: dict[Node, Node] = {}
    piece = Graph()
    for node in needed:
        copied[node] = piece.placeholder(node.name)

    def copy(node: Node) -> Node:
        """In the new graph; weights and lengths go into every piece that asks for them."""
        if node not in copied:
            copied[node] = piece.node_copy(node, copy)
        return copied[node]

    for node in body:
        copied[node] = piece.node_copy(node, copy)
    leaving = [node for node in body if any(user.op == "output" or user in marks or stage[user] > number for user in node.users)]
    piece.output(tuple(copied[node] for node in leaving))
    names = tuple(node.name for node in needed), tuple(node.name for node in leaving)
    return Part(Piece(file, *names), GraphModule(graph, piece), tuple(values[name].contiguous() for name in names[0]))


def _from_before(node: Node, stage: Mapping[Node, int], marks: Sequence[Node], number: int) -> Iterator[Node]:
    """What a node takes from outside its piece."""
    for source in node.all_input_nodes:
        if _is_repeated(source):
            yield from _from_before(source, stage, marks, number)
        elif source.op == "placeholder" or source in marks or stage[source] < number:
            yield source


def _computes(node: Node) -> bool:
    return node.op not in ("placeholder", "output") and not _is_repeated(node)


def _is_repeated(node: Node) -> bool:
    """Weights, and the length of the row: not passed from piece to piece."""
    return node.op == "get_attr" or _is(node, "sym_size")


def _is(node: Node, name: str) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and name in str(node.target)


def _attention(mark: Node) -> Attention:
    query, key, value, scale, window = mark.args
    named: list[Any] = [query, key, value]
    return Attention((named[0].name, named[1].name, named[2].name), mark.name, float(str(scale)), int(str(window)) or None)


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters warn of what is theirs to mend, not the user's."""
    loggers = [
        logging.getLogger(name)
        for name in ("torch", "torch.onnx", "transformers", "torch.export", "nncf", "onnxscript", "onnx_ir")
    ]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
