#!/usr/bin/env python3
"""Deploy an endpoint on Amazon SageMaker from one YAML file, from flags, or from both: the flags win.

    deploy_endpoint.py endpoint.yaml                      create it, or update it to what the file says
    deploy_endpoint.py endpoint.yaml --dry-run            print the calls as JSON, and send none
    deploy_endpoint.py endpoint.yaml --emit cloudformation > template.yaml
    deploy_endpoint.py --name sentences --delete          remove everything that was made for it, and nothing else
    deploy_endpoint.py --name sentences --image URI --model s3://bucket/model.tar.gz --role ARN --instance-type ml.c6i.xlarge

Every call is checked against AWS's own service model before the first one is sent. Running it again updates: models and
configurations are named by their content, and what an earlier run made and nothing uses any more is removed. Kinds:
real-time, serverless, async, pipeline, multi-container, multi-model, components; examples/ has a file for some of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkout

if __name__ == "__main__":
    checkout.enter(("boto3", "jsonschema", "rich", "yaml"))

import boto3
from rich.console import Console

from aws_faults import AWS_FAULTS, sentence
from deployment.applying import apply
from deployment.calls import readable
from deployment.deleting import delete
from deployment.description import Description, Kind
from deployment.errors import DeploymentError
from deployment.following import Follower
from deployment.images import inspect
from deployment.plan import plan
from deployment.reading import read
from deployment.smoke import ask
from deployment.templates import template

STOPPED = 130


def main() -> int:
    """The command line; 0 when the endpoint serves, 1 with what went wrong, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    follower = Follower(Console(stderr=True), options.pause, 60.0 * options.limit)
    try:
        if options.delete and not options.description:
            delete(session_for(options.region), options.name, follower)
            return 0
        description = read(options.description, given(options))
        session = session_for(options.region or description.region)
        if options.delete:
            delete(session, description.name, follower)
        else:
            deploy(options, description, session, follower)
    except DeploymentError as error:
        print(f"deploy_endpoint: {error}", file=sys.stderr)
        return 1
    except AWS_FAULTS as error:
        print(f"deploy_endpoint: {sentence(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the printed calls has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("deploy_endpoint: stopped; AWS goes on with what was begun, and running this again takes it up", file=sys.stderr)
        return STOPPED
    return 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "description", nargs="?", type=Path, metavar="YAML", help="see scripts/deployment/description.schema.json"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the calls as JSON and send none")
    parser.add_argument("--emit", choices=["cloudformation"], help="print a template of the same and send nothing")
    parser.add_argument("--delete", action="store_true", help="remove what was made for the endpoint")
    parser.add_argument("--region", help="the AWS region (default: the file's, else the session's)")
    parser.add_argument("--pause", type=float, default=10.0, metavar="S", help="seconds between two looks (default: %(default)g)")
    parser.add_argument("--limit", type=float, default=60.0, metavar="MIN", help="minutes to wait (default: %(default)g)")
    for flag, words in FLAGS.items():
        parser.add_argument(flag, **words)
    options = parser.parse_args()
    if not options.description and not options.name:
        parser.error("name a YAML file, or an endpoint with --name")
    if options.delete and (options.dry_run or options.emit):
        parser.error("--delete goes without --dry-run and --emit")
    return options


FLAGS: dict[str, dict[str, Any]] = {
    "--name": {"help": "of the endpoint"},
    "--kind": {"choices": [str(kind) for kind in Kind]},
    "--role": {"metavar": "ARN", "help": "the role that SageMaker assumes"},
    "--image": {"metavar": "URI", "help": "what build_and_push.sh printed"},
    "--model": {"metavar": "S3", "help": "a model.tar.gz, or a prefix of plain files that ends in /"},
    "--env": {"action": "append", "metavar": "NAME=VALUE", "help": "a setting of the container; repeatable"},
    "--instance-type": {"metavar": "TYPE"},
    "--instance-count": {"type": int, "metavar": "N"},
    "--memory": {"type": int, "metavar": "MB", "help": "of a serverless endpoint"},
    "--concurrency": {"type": int, "metavar": "N", "help": "of a serverless endpoint"},
    "--async-output": {"metavar": "S3", "help": "where an asynchronous endpoint writes"},
    "--load-test": {"metavar": "JSON", "help": "what load_test.py wrote: scaling follows it"},
    "--max-instances": {"type": int, "metavar": "N", "help": "to which scaling goes"},
    "--sample": {"metavar": "FILE", "help": "the body of the call at the end"},
    "--content-type": {"metavar": "TYPE", "help": "of the sample (default: application/json)"},
}
PLACES = {
    "name": ("name",),
    "kind": ("kind",),
    "role": ("role",),
    "image": ("image",),
    "model": ("model",),
    "instance_type": ("instances", "type"),
    "instance_count": ("instances", "count"),
    "memory": ("serverless", "memory_mb"),
    "concurrency": ("serverless", "concurrency"),
    "async_output": ("async", "output"),
    "load_test": ("scaling", "load_test"),
    "max_instances": ("scaling", "max"),
    "sample": ("smoke", "file"),
    "content_type": ("smoke", "content_type"),
}


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The flags in the words of the file. Raises DeploymentError."""
    found: dict[str, Any] = {}
    for flag, path in PLACES.items():
        value = getattr(options, flag)
        if value is None:
            continue
        holder = found
        for step in path[:-1]:
            holder = holder.setdefault(step, {})
        holder[path[-1]] = value
    for entry in options.env or []:
        name, equals, value = entry.partition("=")
        if not equals:
            raise DeploymentError(f"--env {entry}: write NAME=VALUE")
        found.setdefault("environment", {})[name] = value
    return found


def session_for(region: str | None) -> Any:
    """boto3 as the environment and the user's files configure it."""
    return boto3.Session(region_name=region)


def deploy(options: argparse.Namespace, description: Description, session: Any, follower: Follower) -> None:
    """Print or do it. Raises DeploymentError and botocore's errors."""
    planned = plan(description, inspector(session), session.region_name)
    if options.emit:
        print(template(planned), end="")
    elif options.dry_run:
        print(readable(planned.calls))
    else:
        apply(session, planned, follower)
        for line in ask(session, planned.smoke, options.pause):
            print(line)


def inspector(session: Any) -> Callable[[str], Any]:
    """Reads images with this session."""
    return lambda uri: inspect(uri, session)


if __name__ == "__main__":
    sys.exit(main())
