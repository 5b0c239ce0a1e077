#!/usr/bin/env bash
# Makes the server's virtual environment, in a checkout and in an image alike.
#
#   install.sh VENV DEVICE      DEVICE: cpu or gpu, the lock in docker/requirements
#
# torch comes from docker/wheels/, else from where pip is configured to look, else from TORCH_INDEX; whichever
# it is, the lock's hash decides.
set -euo pipefail

venv=$1
device=$2
here=$(dirname "$(realpath "$0")")
wheels=$here/wheels
locks=$here/requirements
# Each lock is a complete list (see left-out.txt), hence --no-deps.
options=(--no-deps --require-hashes --disable-pip-version-check --find-links "$wheels")

python3.11 -m venv --clear "$venv"
"$venv/bin/pip" install "${options[@]}" -r "$locks/build.txt"
if [ -n "${TORCH_INDEX:-}" ] && ! compgen -G "$wheels/torch-*.whl" >/dev/null; then
    options+=(--extra-index-url "$TORCH_INDEX")
fi
# What is published as source only builds with the setuptools just installed, not with an unlocked one.
"$venv/bin/pip" install "${options[@]}" --no-build-isolation --use-pep517 -r "$locks/$device.txt"
