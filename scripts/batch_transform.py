#!/usr/bin/env python3
"""Run a batch transform job: on SageMaker, or here with the same words and the same results.

    batch_transform.py job.yaml                                    create the job on SageMaker and follow it
    batch_transform.py job.yaml --dry-run                          print the checked requests and send nothing
    batch_transform.py job.yaml --local torchserve-byoc:cpu --model ./my-model
    batch_transform.py job.yaml --local http://127.0.0.1:8080 http://127.0.0.1:8081
    batch_transform.py --input data/ --output out/ --split-type Line --assemble-with Line \\
        --content-type application/jsonlines --local http://127.0.0.1:8080
    batch_transform.py job.yaml --shard auto --shard-to s3://bucket/cut/ --records-per-second 300 --within-hours 2

JOB is a YAML or JSON file with the keys of create_transform_job, and under "Model" those of create_model where the model is
to be made first. Flags override the file. Here, input and output may be folders, S3 is where AWS_ENDPOINT_URL says, and a
job that was stopped, or ended in any other way, goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import checkout

if __name__ == "__main__":
    checkout.enter(("yaml", "boto3", "rich", "tenacity", "jsonpath_ng", "urllib3"))

sys.path.insert(0, str(checkout.CHECKOUT / "handler"))

from transform import rules, sagemaker, sharding
from transform.command import STOPPED, Here, run_here
from transform.description import Description, described, not_done_here, read
from transform.faults import JobError
from transform.journal import default_root
from transform.objects import listed
from transform.splitting import FRAMES

FLAGS: dict[str, tuple[tuple[str, ...], type]] = {
    "job-name": (("TransformJobName",), str),
    "model-name": (("ModelName",), str),
    "input": (("TransformInput", "DataSource", "S3DataSource", "S3Uri"), str),
    "data-type": (("TransformInput", "DataSource", "S3DataSource", "S3DataType"), str),
    "content-type": (("TransformInput", "ContentType"), str),
    "compression-type": (("TransformInput", "CompressionType"), str),
    "split-type": (("TransformInput", "SplitType"), str),
    "output": (("TransformOutput", "S3OutputPath"), str),
    "accept": (("TransformOutput", "Accept"), str),
    "assemble-with": (("TransformOutput", "AssembleWith"), str),
    "kms-key-id": (("TransformOutput", "KmsKeyId"), str),
    "batch-strategy": (("BatchStrategy",), str),
    "max-payload-in-mb": (("MaxPayloadInMB",), int),
    "max-concurrent-transforms": (("MaxConcurrentTransforms",), int),
    "invocations-timeout-in-seconds": (("ModelClientConfig", "InvocationsTimeoutInSeconds"), int),
    "invocations-max-retries": (("ModelClientConfig", "InvocationsMaxRetries"), int),
    "input-filter": (("DataProcessing", "InputFilter"), str),
    "join-source": (("DataProcessing", "JoinSource"), str),
    "output-filter": (("DataProcessing", "OutputFilter"), str),
    "instance-type": (("TransformResources", "InstanceType"), str),
    "instance-count": (("TransformResources", "InstanceCount"), int),
    "transform-ami-version": (("TransformResources", "TransformAmiVersion"), str),
}
"""Flag → its place in the request."""


def main() -> int:
    """The command line; 0 when everything has its output, 1 with one sentence otherwise, 2 for wrong arguments, 130 stopped."""
    options = parse_arguments()
    try:
        description = described(request_of(options), local=options.local is not None or options.shard is not None)
        doubts = [*rules.doubtful(description.job)]
        if options.local is not None:
            doubts += not_done_here(description.request)
        for sentence in doubts:
            print(f"note: {sentence}", file=sys.stderr)
        if options.shard:
            return shard(options, description)
        if options.dry_run:
            return dry_run(options, description)
        if options.local is None:
            return sagemaker.run(description, wait=not options.no_wait)
        return run_here(
            description, Here(options.local, options.model, options.containers, options.state or default_root(), options.restart)
        )
    except JobError as error:
        print(f"batch_transform: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("batch_transform: ended at once; start it again to go on", file=sys.stderr)
        return STOPPED


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", type=Path, metavar="JOB", help="YAML or JSON in the words of create_transform_job")
    words = parser.add_argument_group("in place of, or over, what JOB says")
    for flag, (path, kind) in FLAGS.items():
        words.add_argument(f"--{flag}", type=kind, metavar=kind.__name__.upper(), help=".".join(path))
    words.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="Environment, several times")
    here = parser.add_argument_group("here instead of on SageMaker")
    here.add_argument(
        "--local",
        nargs="*",
        metavar="IMAGE|URL",
        help="an image to start, or containers that run; default: the description's image",
    )
    here.add_argument("--model", metavar="DIR|TARBALL|S3URI", help="the model for the image (default: the description's)")
    here.add_argument("--containers", type=positive, default=1, metavar="N", help="start so many of the image")
    here.add_argument("--state", type=Path, metavar="DIR", help="where jobs keep how far they are (default: ~/.local/state/…)")
    here.add_argument("--restart", action="store_true", help="forget how far the job is, and begin anew")
    cut = parser.add_argument_group("cutting an input into balanced files")
    cut.add_argument(
        "--shard", type=shards, metavar="N|auto", help="cut the input into N files, or as many as --within-hours needs"
    )
    cut.add_argument("--shard-to", metavar="URI", help="where the files go; without it only the arithmetic is printed")
    cut.add_argument("--records-per-second", type=float, metavar="R", help="of one instance, as a local job shows them")
    cut.add_argument("--within-hours", type=float, metavar="H", help="when the job is to be done")
    cut.add_argument("--price-per-hour", type=float, metavar="P", help="of one instance")
    parser.add_argument("--dry-run", action="store_true", help="check everything, print it and do nothing")
    parser.add_argument("--no-wait", action="store_true", help="create the job on SageMaker and leave")
    return parser.parse_args()


def request_of(options: argparse.Namespace) -> dict[str, Any]:
    """The file's request with what the flags say over it. Raises JobError."""
    request = read(options.job)
    for flag, (path, _) in FLAGS.items():
        value = getattr(options, flag.replace("-", "_"))
        if value is not None:
            put(request, path, value)
    for pair in options.env:
        name, found, value = pair.partition("=")
        if not found:
            raise JobError(f"--env {pair}: write NAME=VALUE")
        put(request, ("Environment", name), value)
    stored = (
        request.get("TransformInput", {}).get("DataSource", {}).get("S3DataSource")
        if isinstance(request.get("TransformInput"), dict)
        else None
    )
    if isinstance(stored, dict):
        stored.setdefault("S3DataType", "S3Prefix")
    return request


def put(request: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a value in nested objects, which are made where they are missing. Raises JobError."""
    *above, last = path
    for key in above:
        request = request.setdefault(key, {})
        if not isinstance(request, dict):
            raise JobError(f"{key} must hold keys and values")
    request[last] = value


def dry_run(options: argparse.Namespace, description: Description) -> int:
    """Print what would be sent, or for a job here what it would read."""
    if options.local is None:
        calls = [{operation: request} for operation, request in sagemaker.requests(description)]
        print(json.dumps(calls, indent=2, ensure_ascii=False))
        return 0
    objects = listed(description.job.input_uri, description.job.data_type)
    print(json.dumps(dict(description.request), indent=2, ensure_ascii=False))
    for found in objects:
        print(f"{found.size:>14,}  {found.address.text} → {description.job.output_uri.rstrip('/')}/{found.name}.out")
    return 0


def shard(options: argparse.Namespace, description: Description) -> int:
    """Print the arithmetic, and write the shards where they are to go. Raises JobError."""
    job = description.job
    if job.split not in FRAMES:
        raise JobError("SplitType None has no records to cut at: say SplitType Line, RecordIO or TFRecord")
    objects = listed(job.input_uri, job.data_type)
    records = sharding.estimated_records(objects, job.split, job.compression)
    count, rate = options.shard, options.records_per_second
    if count == "auto":
        if not rate or not options.within_hours:
            raise JobError("--shard auto needs --records-per-second and --within-hours")
        count = sharding.enough(records, rate, options.within_hours)
    if rate:
        print("\n".join(sharding.table(records, rate, count, options.price_per_hour)))
    if not options.shard_to or options.dry_run:
        return 0
    for written in sharding.cut(objects, job.split, job.compression, count, options.shard_to):
        print(f"{written.size:>14,}  {written.address}", flush=True)
    print(f"now say S3Uri: {options.shard_to} and InstanceCount: {count}")
    return 0


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from 1")
    return int(text)


def shards(text: str) -> int | str:
    """A number of files, or `auto`."""
    return text if text == "auto" else positive(text)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A request that nobody waits for any more may still hold a thread, for up to its timeout.
    os._exit(code)
