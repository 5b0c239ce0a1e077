"""Build the image of this checkout for one platform and push it to Amazon ECR; the last line is its URI.

    build_and_push.sh                                     the CPU image for linux/amd64, to torchserve-byoc
    build_and_push.sh my-repository --device gpu
    build_and_push.sh --platform linux/arm64 --region eu-west-1
    build_and_push.sh --image torchserve-byoc:cpu         push what `make image` built, without building
    build_and_push.sh --dry-run                           print what would be done

The tag says version, device and git revision. The repository is made when it is missing: images are scanned when they
come, tags never move, and images without a tag go after a week. A tag that is there already is not pushed again.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import checkout

if __name__ == "__main__":
    checkout.enter(("boto3",))

import boto3

from aws_faults import AWS_FAULTS, sentence
from publishing.docker import Client, build, build_flags, client, described, logged_in
from publishing.errors import PublishingError
from publishing.naming import PLATFORMS, tag
from publishing.repository import check_manifest, creation, credentials, ensured, lifecycle, manifest_type

DEVICES = ("cpu", "gpu")
STOPPED = 130


def main() -> int:
    """The command line; 0 with the URI, 1 with one sentence, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    try:
        docker = client()
        name = options.tag or tag(options.device, options.platform, options.allow_changes)
        if options.dry_run:
            dry_run(options, docker, name)
        else:
            publish(options, docker, name)
    except PublishingError as error:
        print(f"build_and_push: {error}", file=sys.stderr)
        return 1
    except AWS_FAULTS as error:
        print(f"build_and_push: {sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("build_and_push: stopped; running this again takes it up", file=sys.stderr)
        return STOPPED
    return 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(
        prog="build_and_push.sh", description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", nargs="?", default="torchserve-byoc", help="in ECR (default: %(default)s)")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="which image (default: %(default)s)")
    parser.add_argument("--platform", choices=sorted(PLATFORMS), default="linux/amd64", help="(default: %(default)s)")
    parser.add_argument("--image", metavar="NAME", help="push this local image instead of building one")
    parser.add_argument("--tag", help="instead of version, device and revision")
    parser.add_argument("--allow-changes", action="store_true", help="although files differ from the last commit")
    parser.add_argument("--region", help="the AWS region (default: the session's)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done")
    return parser.parse_args()


def publish(options: argparse.Namespace, docker: Client, name: str) -> None:
    """Build, then push unless the tag is there. Raises PublishingError and botocore's errors."""
    ecr = boto3.client("ecr", region_name=options.region)
    image = options.image or f"torchserve-byoc:{options.device}"
    uri, made = ensured(ecr, options.repository)
    if made:
        say(f"made the repository {options.repository}")
    if manifest_type(ecr, options.repository, name) is None:
        if not options.image:
            build(options.device, options.platform, build_flags(docker))
        check_platform(described(docker, image), image, options.platform)
        push(docker, image, f"{uri}:{name}", ecr)
    else:
        say(f"{name} is there already")
    check_manifest(ecr, options.repository, name)
    print(f"{uri}:{name}")


def check_platform(description: dict[str, Any], image: str, platform: str) -> None:
    """Raises PublishingError for an image of another platform than was asked for."""
    found = f"{description.get('Os', 'linux')}/{description.get('Architecture')}"
    if found != platform:
        raise PublishingError(f"{image} is for {found}: pass --platform {found}, or build for {platform}")


def push(docker: Client, image: str, target: str, ecr: Any) -> None:
    """Under the target's name, which stays with the engine: deploy_endpoint.py then reads the image's labels here."""
    registry = target.partition("/")[0]
    key = credentials(ecr)
    with logged_in(docker, registry, key.user, key.password) as settings:
        docker.run("tag", image, target)
        say(f"pushing {target}")
        docker.run("push", "--quiet", target, settings=settings)


def dry_run(options: argparse.Namespace, docker: Client, name: str) -> None:
    """The steps as JSON, with no call to AWS and none that changes anything."""
    image = options.image or f"torchserve-byoc:{options.device}"
    target = f"REGISTRY/{options.repository}:{name}"
    flags = ["--platform", options.platform, *build_flags(docker)]
    built = (
        [] if options.image else [{"run": ["docker/setup.sh", "image", options.device], "DOCKER_BUILD_FLAGS": " ".join(flags)}]
    )
    steps = [
        {"service": "ecr", "operation": "CreateRepository", "unless": "it is there", "parameters": creation(options.repository)},
        {"service": "ecr", "operation": "PutLifecyclePolicy", "if": "it was made", "parameters": lifecycle(options.repository)},
        *built,
        {"service": "ecr", "operation": "GetAuthorizationToken", "parameters": {}},
        {"run": [docker.program, "login", "--username", "AWS", "--password-stdin", "REGISTRY"]},
        {"run": [docker.program, "tag", image, target]},
        {"run": [docker.program, "push", "--quiet", target]},
    ]
    print(json.dumps(steps, indent=2))


def say(line: str) -> None:
    """Progress, apart from the URI on standard output."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
