"""Prompts and conversations to token ids, as the model's own tokenizer and chat template have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batch_handler.errors import invalid_record, quote
from batch_handler.tasks.tokenisation import readable

Message = Mapping[str, Any]


class Prompts:
    """Reads what a record holds. Not for use by several threads at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ids(self, inputs: Any) -> tuple[list[int], bool]:
        """Token ids, and whether the beginning was left unread for being too long.

        Raises ServiceError (400) for what is neither a text nor a conversation, and where there are no tokens.
        """
        if isinstance(inputs, str):
            whole, marked = inputs, False
        elif _is_chat(inputs):
            whole, marked = self._rendered(inputs), True
        else:
            raise invalid_record(f"'inputs' must be a text, or a list of messages with 'role' and 'content', not {quote(inputs)}")
        read = readable(whole, keeps_end=True)
        ids = self._tokenizer(read, add_special_tokens=not marked, truncation=False, verbose=False)["input_ids"]
        if not ids and self._tokenizer.bos_token_id is not None:
            ids = [self._tokenizer.bos_token_id]
        if not ids:
            raise invalid_record("the text holds no token that this model knows: send some text")
        return list(ids), len(read) < len(whole)

    def _rendered(self, messages: list[Message]) -> str:
        """The conversation as the template writes it, with whatever starts the answer."""
        if not self._tokenizer.chat_template:
            raise invalid_record("this model's tokenizer has no chat template: send a text")
        unfinished = messages[-1]["role"] == "assistant"
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not unfinished, continue_final_message=unfinished
            )
        except Exception as error:  # noqa: BLE001 - a template may raise what it likes about the messages
            raise invalid_record(f"the model's chat template refuses these messages: {error}") from None
        return text


def answered(source: str | list[Message], text: str) -> str | list[Message]:
    """What was sent with the new text behind it: a longer text, or a longer conversation."""
    if isinstance(source, str):
        return source + text
    if source[-1]["role"] == "assistant":
        return [*source[:-1], {"role": "assistant", "content": source[-1]["content"] + text}]
    return [*source, {"role": "assistant", "content": text}]


def _is_chat(inputs: Any) -> bool:
    return (
        isinstance(inputs, list)
        and bool(inputs)
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
            for message in inputs
        )
    )
