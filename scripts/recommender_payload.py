#!/usr/bin/env python3
"""Prepare a job of SageMaker's Inference Recommender: sample bodies as a flat .tar.gz, and the job as JSON.

    recommender_payload.py samples/ --payload s3://bucket/payload.tar.gz --model-name sentences-0123456789ab --role ARN
    recommender_payload.py bodies.jsonl --instance-types ml.c5.xlarge,ml.c5.2xlarge --batch-sizes 8,32,128 --delays 1,5,20 …

SAMPLES is a folder of request bodies, one a file, or a .jsonl file with one a line. The job tries every instance type with
the batch sizes and delays given, each of which is a setting of the container, under growing numbers of users. Nothing is
sent; the last lines say how to.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import checkout

if __name__ == "__main__":
    checkout.enter(("boto3",))

from deployment.calls import Call, check
from deployment.errors import DeploymentError

BATCH_SIZE = "SAGEMAKER_TS_BATCH_SIZE"
DELAY = "SAGEMAKER_TS_MAX_BATCH_DELAY"
PAYLOAD_LIMIT = 25 << 20  # a real-time invocation takes no more
PHASE_S = 120
MOST_USERS = 30
MOST_VALUES = 3
PERCENTILE = "P95"


def main() -> int:
    """The command line; 0 when both files are written, 1 with one sentence, 2 for wrong arguments."""
    options = parse_arguments()
    try:
        call = Call("sagemaker", "CreateInferenceRecommendationsJob", job(options))
        check(call)
        bodies = samples(options.samples)
        options.archive.write_bytes(packed(bodies))
        options.job.write_text(json.dumps(call.parameters, indent=2) + "\n", "utf-8")
    except DeploymentError as error:
        print(f"recommender_payload: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"recommender_payload: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{options.archive}: {len(bodies)} bodies, {options.archive.stat().st_size:,} bytes; {options.job}: the job")
    print(f"aws s3 cp {options.archive} {options.payload}")
    print(f"aws sagemaker create-inference-recommendations-job --cli-input-json file://{options.job}")
    return 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, metavar="SAMPLES", help="a folder of bodies, or a .jsonl file")
    parser.add_argument("--payload", required=True, metavar="S3", help="where the archive will lie")
    parser.add_argument("--role", required=True, metavar="ARN", help="the role that SageMaker assumes")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model-name", metavar="NAME", help="one that deploy_endpoint.py or CreateModel made")
    model.add_argument("--model-package", metavar="ARN", help="a version in the model registry")
    parser.add_argument("--name", default="torchserve-byoc", help="of the job (default: %(default)s)")
    parser.add_argument("--instance-types", type=words, default=["ml.c5.xlarge", "ml.c5.2xlarge"], metavar="LIST")
    parser.add_argument("--batch-sizes", type=numbers, default=["8", "32", "128"], metavar="LIST", help="requests, up to three")
    parser.add_argument("--delays", type=numbers, default=["1", "5", "20"], metavar="LIST", help="milliseconds, up to three")
    parser.add_argument("--latency-ms", type=int, metavar="MS", help=f"the {PERCENTILE} latency at which a trial ends")
    parser.add_argument("--content-type", default="application/json", metavar="TYPE", help="(default: %(default)s)")
    parser.add_argument("--domain", default="NATURAL_LANGUAGE_PROCESSING", help="(default: %(default)s)")
    parser.add_argument("--task", default="OTHER", help="in the Recommender's words (default: %(default)s)")
    parser.add_argument("--archive", type=Path, default=Path("payload.tar.gz"), metavar="FILE", help="(default: %(default)s)")
    parser.add_argument(
        "--job", type=Path, default=Path("recommendations-job.json"), metavar="FILE", help="(default: %(default)s)"
    )
    return parser.parse_args()


def words(text: str) -> list[str]:
    """A comma-separated list."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError("the list is empty")
    return found


def numbers(text: str) -> list[str]:
    """A comma-separated list of whole numbers from 1, as an environment holds them."""
    found = words(text)
    if any(not word.isdecimal() or int(word) < 1 for word in found):
        raise argparse.ArgumentTypeError(f"{text!r}: write whole numbers from 1, such as 8,32,128")
    if len(found) > MOST_VALUES:
        raise argparse.ArgumentTypeError(f"{text!r}: the Recommender tries at most {MOST_VALUES} values of a setting")
    return found


def samples(path: Path) -> list[tuple[str, bytes]]:
    """File name in the archive and body of each sample. Raises DeploymentError."""
    if path.is_dir():
        found = [(each.name, each.read_bytes()) for each in sorted(path.iterdir()) if each.is_file() and each.name[0] != "."]
    elif path.is_file():
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        found = [(f"sample-{number:04d}.json", line) for number, line in enumerate(lines, 1)]
    else:
        raise DeploymentError(f"{path} does not exist: name a folder of request bodies, or a .jsonl file")
    if not found:
        raise DeploymentError(f"{path} holds no samples: put one request body into each file, or on each line")
    for name, body in found:
        if not 0 < len(body) <= PAYLOAD_LIMIT:
            raise DeploymentError(f"{path}: {name} has {len(body):,} bytes, 1 to {PAYLOAD_LIMIT:,} are accepted")
    return found


def packed(bodies: Sequence[tuple[str, bytes]]) -> bytes:
    """A gzipped tar with every body at its top, the same bytes for the same bodies."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, body in bodies:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return gzip.compress(plain.getvalue(), mtime=0)


def job(options: argparse.Namespace) -> dict[str, Any]:
    """CreateInferenceRecommendationsJob: advanced, as only that kind varies the environment."""
    ranges = [{"Name": BATCH_SIZE, "Value": options.batch_sizes}, {"Name": DELAY, "Value": options.delays}]
    configurations = [
        {"InstanceType": instance, "EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}}
        for instance in options.instance_types
    ]
    model = {"ModelName": options.model_name} if options.model_name else {"ModelPackageVersionArn": options.model_package}
    stopping: dict[str, Any] = {"MaxInvocations": 30_000}
    if options.latency_ms:
        stopping["ModelLatencyThresholds"] = [{"Percentile": PERCENTILE, "ValueInMilliseconds": options.latency_ms}]
    return {
        "JobName": options.name,
        "JobType": "Advanced",
        "RoleArn": options.role,
        "InputConfig": {
            **model,
            "ContainerConfig": {
                "Domain": options.domain,
                "Task": options.task,
                "Framework": "PYTORCH",
                "PayloadConfig": {"SamplePayloadUrl": options.payload, "SupportedContentTypes": [options.content_type]},
                "SupportedInstanceTypes": options.instance_types,
            },
            "EndpointConfigurations": configurations,
            "TrafficPattern": {"TrafficType": "PHASES", "Phases": phases()},
            "ResourceLimit": {"MaxNumberOfTests": len(options.batch_sizes) * len(options.delays) * len(configurations)},
        },
        "StoppingConditions": stopping,
    }


def phases() -> list[dict[str, int]]:
    """One user alone, who pays the whole delay, then as many as make batches."""
    return [
        {"InitialNumberOfUsers": 1, "SpawnRate": 1, "DurationInSeconds": PHASE_S},
        {"InitialNumberOfUsers": MOST_USERS, "SpawnRate": 1, "DurationInSeconds": PHASE_S},
    ]


if __name__ == "__main__":
    sys.exit(main())
