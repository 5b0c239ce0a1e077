#!/usr/bin/env bash
# Build the image and push it to Amazon ECR, under the name that AWS's samples use; build_and_push.py has the work.
set -euo pipefail
exec python3 "$(dirname "$(realpath "$0")")/build_and_push.py" "$@"
