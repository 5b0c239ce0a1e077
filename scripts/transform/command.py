"""A local job from its description to its exit code: containers, limits, the run, and what is said about it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from transform import artefacts, targets
from transform.description import Description, Job
from transform.faults import JobError
from transform.joining import processing
from transform.journal import Journal, fingerprint
from transform.limits import agreed, chosen, measured
from transform.local import LocalRun, Result, stopped_by_signals
from transform.objects import InputObject, address, listed
from transform.payloads import Limits
from transform.sending import Sender
from transform.splitting import size
from transform.targets import Targets

STOPPED = 130


@dataclass(frozen=True, slots=True)
class Here:
    """Where a local job runs: an image or addresses (``where``), the model for the image, and where its journal is kept."""

    where: Sequence[str]
    model: str | None
    containers: int
    state: Path
    restart: bool


def run_here(description: Description, here: Here) -> int:
    """Run the job; 0 when every object has its output, 1 when some have none, 130 when it was stopped. Raises JobError."""
    job = description.job
    objects = listed(job.input_uri, job.data_type)
    check_apart(job, objects)
    model = here.model or artefacts.source(description.container)
    folder = here.state / fingerprint(job, model)
    stopping = threading.Event()
    with ExitStack() as stack:
        journal = Journal.opened(folder)
        stack.callback(journal.close)
        stack.enter_context(stopped_by_signals(stopping))
        members = stack.enter_context(containers(description, here, model, folder.name))
        sender = Sender(job, members, stopping)
        limits = settled(job, objects, members, journal, sender, here.restart)
        announce(limits, job, objects, members)
        run = LocalRun(job, objects, limits, sender, journal, limits.concurrency * len(members.members), here.restart, stopping)
        try:
            result = run.run()
        except JobError as error:
            raise JobError(f"{error}; what is done is kept: start the job again to go on") from None
    return report(result, job)


def check_apart(job: Job, objects: Sequence[InputObject]) -> None:
    """Outputs must not become inputs of the next run, nor two objects share an output. Raises JobError."""
    source, target = address(job.input_uri), address(job.output_uri)
    if source.bucket and source.bucket == target.bucket and target.key.startswith(source.key):
        raise JobError(f"{target.text} lies below the input {source.text}: name an output elsewhere")
    if not source.bucket and not target.bucket and target.path.resolve().is_relative_to(source.path.resolve()):
        raise JobError(f"{target.text} lies below the input {source.text}: name an output elsewhere")
    names = [found.name for found in objects]
    if len(set(names)) < len(names):
        raise JobError(f"{job.input_uri} names an object twice: every output needs a name of its own")


@contextmanager
def containers(description: Description, here: Here, model: str, owner: str) -> Iterator[Targets]:
    """The containers of the job, ready to be asked. Raises JobError."""
    where = list(here.where) or [str(description.container.get("Image", ""))]
    if all("://" in text for text in where):
        found = Targets([targets.at(text) for text in where])
        targets.await_ready(found)
        yield found
        return
    if len(where) > 1 or not where[0]:
        raise JobError("--local takes one image, or the addresses of containers that run: http://host:port")
    scratch = Path(tempfile.mkdtemp(prefix="transform-"))
    scratch.chmod(0o755)  # the container's user is another one
    try:
        directory = artefacts.directory(model, scratch) if model else None
        with targets.started(where[0], here.containers, directory, variables(description), owner) as started:
            yield started
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def variables(description: Description) -> Mapping[str, str]:
    """What the platform sets in a job's containers: the model's, the job's, and its own about the job."""
    job = description.job
    said = {
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": None if job.max_payload_mb is None else str(job.max_payload_mb),
        "SAGEMAKER_BATCH_STRATEGY": {"MultiRecord": "MULTI_RECORD", "SingleRecord": "SINGLE_RECORD"}.get(job.strategy or ""),
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": str(job.concurrency) if job.concurrency else None,
    }
    own = {name: value for name, value in said.items() if value is not None}
    return {**description.container.get("Environment", {}), **job.environment, **own, "SAGEMAKER_BATCH": "true"}


def settled(
    job: Job, objects: Sequence[InputObject], members: Targets, journal: Journal, sender: Sender, restart: bool
) -> Limits:
    """The limits of the job. What an earlier run settled stays, so that requests are cut where it would have cut them."""
    limits = agreed(job, targets.wanted(members))
    before = {} if restart else journal.settled()
    if before:
        return replace(limits, strategy=before["strategy"], payload=before["payload"])
    compiled = processing(job)
    limits = chosen(job, limits, measured(objects, job, limits, compiled, sender.send), objects)
    journal.settle({"strategy": limits.strategy, "payload": limits.payload})
    return limits


def announce(limits: Limits, job: Job, objects: Sequence[InputObject], members: Targets) -> None:
    """What the job will do, and what a measurement says about it, before it begins."""
    for sentence in limits.said:
        print(sentence, file=sys.stderr)
    total = sum(found.size for found in objects)
    body = f"requests of up to {size(limits.payload)}" if limits.payload else "one streamed request per object"
    if limits.strategy == "SingleRecord" and job.split != "None":
        body = "one record per request"
    print(
        f"{len(objects):,} objects, {total / 1e6:,.1f} MB: {body}, {limits.concurrency} in flight to each of "
        f"{len(members.members)} container{'s' * (len(members.members) > 1)}",
        file=sys.stderr,
        flush=True,
    )


def report(result: Result, job: Job) -> int:
    """Print how it went; the exit code."""
    tally = result.tally
    for name, reason in result.failures.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    if result.uneven:
        print(f"note: {result.uneven:,} answers had not as many lines as their requests", file=sys.stderr)
    print(
        f"{result.finished:,} of {result.objects:,} objects written to {job.output_uri}: {result.all_records:,} records, "
        f"{result.all_failed:,} of them failed{' (listed in .errors.jsonl)' if result.all_failed else ''}; "
        f"this run {tally.records:,} records in {tally.seconds:,.1f} s ({tally.records / tally.seconds:,.0f}/s), "
        f"{result.repeated:,} requests repeated"
    )
    if result.stopped and result.finished + len(result.failures) < result.objects:
        print("stopped; start the job again to go on", file=sys.stderr)
        return STOPPED
    return 1 if result.failures else 0
