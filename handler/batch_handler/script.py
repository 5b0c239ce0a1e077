"""A user's script behind HTTP: `code/inference.py` and its functions, one call per request or one for many.

Each request has its own headers, error and status; nothing that a script raises, SystemExit included, leaves here.
What the functions are and how they are called belongs to `user_code`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sagemaker_inference import content_types

from batch_handler import device, negotiation, resources
from batch_handler.application import UNSAFE_IN_HEADERS, Answers, Reply, check_size, echoed, failed, response_limit
from batch_handler.artefact import CODE, ArtefactError, script_file
from batch_handler.errors import ServiceError
from batch_handler.internal import ALONE
from batch_handler.journal import UNKEPT, Noting
from batch_handler.microbatch import Lanes, MicroBatch, Report
from batch_handler.request import Request, Response
from batch_handler.settings import MIB, Settings
from batch_handler.stages import DECODE, ENCODE, FORWARD, timed
from batch_handler.user_code import answers, defaults, faults, functions, stacking
from batch_handler.user_code.context import Context
from batch_handler.user_code.functions import Function
from batch_handler.worker_log import about

log = logging.getLogger(__name__)

ANY = ("", content_types.ANY, "*")
OURS_ALONE = ("content-length", "content-type", "transfer-encoding", "connection")


@dataclass(slots=True)
class Call:
    """One request on its way through the script. ``value`` is what the last function gave, or its error."""

    request: Request
    context: Context
    content_type: str = ""
    accept: str = ""
    value: Any = None


class Script:
    """A loaded script and its model."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        path = script_file(directory, settings.program)
        if path is None:
            raise ArtefactError(f"there is no {CODE}/{settings.program} in {directory}")
        self.journal: Noting = UNKEPT
        self._settings = settings
        self._passes = itertools.count(1)
        self._limit = settings.request_limit_mb * MIB
        self._response_limit = response_limit(settings)
        self._directory = model_directory(directory)
        self._code = functions.load(path)
        self._lanes = Lanes((settings.threads or resources.available().whole_cpus) if self._code.thread_safe else 1)
        self._model = self._start()
        self._padding = stacking.padding_of(self._model, self._code.pad_token_id)

    @property
    def repeatable(self) -> bool:
        """What the script says of itself: it may write somewhere what it was asked."""
        return self._code.idempotent

    @property
    def description(self) -> str:
        """The file, its functions, and how requests are batched."""
        batched = next((name for name in ("batch_transform_fn", "batch_predict_fn") if name in self._code.functions), None)
        how = batched or ("stacked" if self._code.batchable else "no")
        defined = "+".join(self._code.functions)
        return f"script={CODE}/{self._code.path.name} functions={defined} batched={how} lanes={self._lanes.count}"

    def __call__(self, requests: Sequence[Request]) -> Answers:
        """Answer every request, in order."""
        calls = [self._opened(request) for request in requests]
        report = Report()
        self._transform([call for call in calls if not isinstance(call.value, ServiceError)], report)
        return Answers([self._answered(call) for call in calls], report)

    def serve(self, requests: Sequence[Request], reply: Reply) -> None:
        """Answer a batch before the next may come: what a script's functions share among them is theirs to say.

        A request that may have ended a worker comes last and by itself.
        """
        if not requests:
            return  # all of their callers left
        began = time.monotonic()
        company = [index for index, request in enumerate(requests) if request.headers.get(ALONE) is None]
        groups = [company] if company else []
        groups += [[index] for index in range(len(requests)) if index not in company]
        for group in groups[:-1]:
            reply(list(zip(group, self._whole([requests[index] for index in group]).responses, strict=True)), None)
        answers = self._whole([requests[index] for index in groups[-1]])
        answers.report.requests, answers.report.handler_s = len(requests), time.monotonic() - began
        reply(list(zip(groups[-1], answers.responses, strict=True)), answers.report)

    def _whole(self, requests: Sequence[Request]) -> Answers:
        """Answer requests; what must not be run twice is noted as running from its first function to its answer's end."""
        with nullcontext() if self.repeatable else self.journal.running([(request.id, 0) for request in requests]):
            return self(requests)

    def cancel(self, identifiers: Sequence[str]) -> None:
        """A batch of a script is one call, or over in a moment: nothing of it can be taken back."""

    def warm_up(self) -> None:
        """The script's own `model_warmup_fn`; a script without one has nothing that could be run."""
        if warm_up := self._code.functions.get("model_warmup_fn"):
            self._at_start(warm_up, str(self._directory), self._model)

    def _start(self) -> Any:
        if before := self._code.functions.get("pre_model_fn"):
            self._at_start(before, str(self._directory))
        return self._at_start(self._function("model_fn", defaults.model_fn), str(self._directory))

    def _at_start(self, function: Function, *arguments: Any) -> Any:
        """A call whose failure stops the start. Raises ArtefactError."""
        try:
            return function(*arguments, context=Context(self._directory))
        except (KeyboardInterrupt, ArtefactError):
            raise
        except BaseException as error:  # a script may even call sys.exit
            raise functions.broken(f"{function.name} of the script failed", error) from error

    def _function(self, name: str, default: Callable[..., Any]) -> Function:
        return self._code.functions.get(name) or Function(name, default, None)

    def _opened(self, request: Request) -> Call:
        """The body without its content coding; JSON and CSV as text, as the toolkit hands them on."""
        call = Call(request, Context(self._directory, [request]))
        with timed((request.stages,), DECODE):
            try:
                call.content_type, charset = declared(request.headers.get("Content-Type"))
                call.accept = accepted(request.headers.get("Accept"), self._settings.default_accept or content_types.JSON)
                coding = request.headers.get("Content-Encoding")
                body = negotiation.content(bytes(request.body), coding, self._limit) if request.body else b""
                call.value = body
                if call.content_type in content_types.UTF8_TYPES:
                    call.value = negotiation.text(body, charset)
            except ServiceError as error:
                call.value = error
        return call

    def _transform(self, calls: Sequence[Call], report: Report) -> None:
        """Bodies to results. Whatever fails leaves its error in the place of its own result."""
        user = self._code.functions
        alone = [MicroBatch((index,), 0, 0) for index in range(len(calls))]
        together = [MicroBatch(tuple(range(len(calls))), 0, 0)] if calls else []
        if "batch_transform_fn" in user:
            self._stage(calls, together, self._batch_transform, report)
        elif "transform_fn" in user:
            self._stage(calls, alone, self._transformed, report)
        elif "batch_predict_fn" in user or self._code.batchable:
            self._stage(calls, alone, self._input, Report(), DECODE)
            kept = [call for call in calls if not isinstance(call.value, ServiceError)]
            if "batch_predict_fn" in user:
                self._stage(kept, [MicroBatch(tuple(range(len(kept))), 0, 0)] if kept else [], self._batch_predict, report)
            else:
                self._stage(kept, self._stackable(kept), self._stacked, report)
            kept = [call for call in kept if not isinstance(call.value, ServiceError)]
            self._stage(kept, [MicroBatch((index,), 0, 0) for index in range(len(kept))], self._output, Report(), ENCODE)
        else:
            self._stage(calls, alone, self._all_three, report, None)

    def _stage(
        self,
        calls: Sequence[Call],
        batches: Sequence[MicroBatch],
        step: Callable[[Sequence[Call]], Sequence[Any]],
        report: Report,
        stage: str | None = FORWARD,
    ) -> None:
        """Run a step over micro-batches of calls; one that fails is tried in halves until the culprit is alone.

        `stage` is what its time counts as; None where the step takes it itself.
        """

        def forward(indices: Sequence[int]) -> Sequence[Any]:
            chosen = [calls[index] for index in indices]
            with (
                about([call.request.callers_id for call in chosen]),
                timed([call.request.stages for call in chosen], stage, self._passes),
                self.journal.running([(call.request.id, 0) for call in chosen]) if self.repeatable else nullcontext(),
            ):
                try:
                    return step(chosen)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 - a script may even call sys.exit
                    device.end_if_fatal(error)
                    raise self._fault(error, chosen) from None

        for call, result in zip(calls, self._lanes.run(batches, forward, len(calls), report), strict=True):
            call.value = result

    def _fault(self, error: BaseException, calls: Sequence[Call]) -> ServiceError:
        """The caller's error, and the traceback in the log; a shared call is tried again, and only then told in full."""
        if len(calls) > 1:
            log.warning("a call for %d requests failed (%s): trying them in halves", len(calls), faults.wording(error))
            return faults.as_error(error)
        if not isinstance(error, ServiceError):
            log.error("the script failed on request %s", calls[0].request.callers_id, exc_info=error)
        return faults.without_input(faults.as_error(error), bytes(calls[0].request.body))

    def _all_three(self, calls: Sequence[Call]) -> Sequence[Any]:
        (call,) = calls
        with timed((call.request.stages,), DECODE, self._passes):
            data = self._function("input_fn", defaults.input_fn)(call.value, call.content_type, context=call.context)
        with timed((call.request.stages,), FORWARD, self._passes):
            prediction = self._function("predict_fn", defaults.predict_fn)(data, self._model, context=call.context)
        with timed((call.request.stages,), ENCODE, self._passes):
            return [self._function("output_fn", defaults.output_fn)(prediction, call.accept, context=call.context)]

    def _transformed(self, calls: Sequence[Call]) -> Sequence[Any]:
        (call,) = calls
        transform = self._code.functions["transform_fn"]
        return [transform(self._model, call.value, call.content_type, call.accept, context=call.context)]

    def _input(self, calls: Sequence[Call]) -> Sequence[Any]:
        (call,) = calls
        return [self._function("input_fn", defaults.input_fn)(call.value, call.content_type, context=call.context)]

    def _output(self, calls: Sequence[Call]) -> Sequence[Any]:
        (call,) = calls
        return [self._function("output_fn", defaults.output_fn)(call.value, call.accept, context=call.context)]

    def _batch_transform(self, calls: Sequence[Call]) -> Sequence[Any]:
        transform = self._code.functions["batch_transform_fn"]
        columns = ([call.value for call in calls], [call.content_type for call in calls], [call.accept for call in calls])
        return _as_many(transform, transform(self._model, *columns, context=joined(calls)), calls)

    def _batch_predict(self, calls: Sequence[Call]) -> Sequence[Any]:
        predict = self._code.functions["batch_predict_fn"]
        return _as_many(predict, predict([call.value for call in calls], self._model, context=joined(calls)), calls)

    def _stackable(self, calls: Sequence[Call]) -> list[MicroBatch]:
        """Inputs that stack together; encodings of similar lengths, within the token budget."""
        batches = stacking.together([stacking.shape(call.value) for call in calls], self._settings.token_budget)
        return [MicroBatch(tuple(batch), 0, 0) for batch in batches]

    def _stacked(self, calls: Sequence[Call]) -> Sequence[Any]:
        predict = self._function("predict_fn", defaults.predict_fn)
        if len(calls) == 1:
            return [predict(calls[0].value, self._model, context=calls[0].context)]
        values = [call.value for call in calls]
        shapes = [stacking.shape(value) for value in values]
        result = predict(stacking.stacked(values, self._padding), self._model, context=joined(calls))
        return stacking.cut(result, [shape.rows for shape in shapes], [shape.length for shape in shapes], self._padding)

    def _answered(self, call: Call) -> Response:
        """The script's result as the answer to its request."""
        with timed((call.request.stages,), ENCODE):
            try:
                if isinstance(call.value, ServiceError):
                    raise call.value
                (reply,) = call.context.replies
                body, content_type = answers.as_bytes(call.value, reply.content_type or call.accept)
                check_size(body, self._response_limit)
            except ServiceError as error:
                return failed(call.request, error)
        status = reply.status if reply.status in set(HTTPStatus) and (reply.status or 0) >= HTTPStatus.OK else HTTPStatus.OK
        own = {name: UNSAFE_IN_HEADERS.sub("?", value) for name, value in reply.headers.items() if _may_be_set(name)}
        bad = int(status >= HTTPStatus.BAD_REQUEST)
        label = UNSAFE_IN_HEADERS.sub("", content_type) or content_types.JSON
        return Response(int(status), label, body, {**echoed(call.request.headers), **own}, 1 - bad, bad)


def load(directory: Path, settings: Settings) -> Script:
    """Import the script and load its model. Raises ArtefactError."""
    return Script(directory, settings)


def model_directory(directory: Path) -> Path:
    """The artefact's own directory where ours holds only links to its files: a script may walk through it."""
    code = directory / CODE
    return code.readlink().parent if code.is_symlink() else directory


def declared(content_type: str | None) -> tuple[str, str]:
    """A body's type as a script compares it: JSON and CSV without parameters; and the charset.

    A type of any other kind stays as it was sent (a multipart boundary is part of it). No type at all is JSON.
    """
    if not content_type or not content_type.strip():
        return content_types.JSON, "utf-8"
    name, charset = negotiation.media_type(content_type)
    return (name, charset) if name in content_types.UTF8_TYPES else (content_type.strip(), charset)


def accepted(accept: str | None, default: str) -> str:
    """The type that a script is asked for: the caller's own, or `default` where it takes that or anything as well."""
    asked = (accept or "").strip()
    if asked in ANY or UNSAFE_IN_HEADERS.search(asked):
        return default
    if "," not in asked and "*" not in asked:
        return asked
    return negotiation.preferred(asked, default)


def joined(calls: Sequence[Call]) -> Context:
    """One context over the requests of a shared call."""
    return Context.joined([call.context for call in calls])


def _as_many(function: Function, results: Any, calls: Sequence[Call]) -> Sequence[Any]:
    """Raises ServiceError (500) unless there is a list of one result per input."""
    if not isinstance(results, list | tuple) or len(results) != len(calls):
        given = f"{len(results)} results" if isinstance(results, list | tuple) else f"a {type(results).__name__}"
        raise TypeError(f"{function.name} returned {given} for {len(calls)} inputs: return a list with one result for each")
    return list(results)


def _may_be_set(name: str) -> bool:
    lowered = name.lower()
    return name.replace("-", "").isalnum() and name.isascii() and lowered not in OURS_ALONE and not lowered.startswith("x-byoc-")
