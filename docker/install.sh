#!/usr/bin/env bash
# Makes the server's virtual environment, in a checkout and in an image alike.
#
#   install.sh VENV DEVICE [TRANSFORMERS [ENGINES [TRACING]]]
#
# DEVICE: cpu or gpu; TRANSFORMERS: the major version, 5 or 4; ENGINES: openvino, onnx or openvino,onnx, for artefacts that
# bring engine/; TRACING: otlp, where traces are to be exported. All name locks in docker/requirements.
#
# REPORTS, a directory, gets what pip tells of each lock that it installed: the bill of materials reads the checksums there.
#
# torch comes from docker/wheels/, else from where pip is configured to look, else from TORCH_INDEX; whichever
# it is, the lock's hash decides.
set -euo pipefail

venv=$1
device=$2
case ${3:-5} in
    5) lock=$device ;;
    4) lock=$device-transformers4 ;;
    *)
        echo "TRANSFORMERS=$3 is no version of this image: use 5 or 4" >&2
        exit 1
        ;;
esac
chosen=${4:-}
read -ra engines <<<"${chosen//,/ }"
here=$(dirname "$(realpath "$0")")
wheels=$here/wheels
locks=$here/requirements
for engine in "${engines[@]}"; do
    if [[ $engine != openvino && $engine != onnx ]]; then
        echo "ENGINES=$chosen names $engine, which is no engine of this image: use openvino, onnx or openvino,onnx" >&2
        exit 1
    fi
done
tracing=${5:-}
if [[ -n $tracing && $tracing != otlp ]]; then
    echo "TRACING=$tracing is not known: use otlp, or nothing" >&2
    exit 1
fi
# Each lock is a complete list (see left-out.txt), hence --no-deps.
options=(--no-deps --require-hashes --disable-pip-version-check --find-links "$wheels")

# install_lock LOCK [OPTION...]
install_lock() {
    local lock=$1 report=()
    shift
    if [ -n "${REPORTS:-}" ]; then
        mkdir -p "$REPORTS"
        report=(--report "$REPORTS/$lock.json")
    fi
    "$venv/bin/pip" install "${options[@]}" "$@" "${report[@]}" -r "$locks/$lock.txt"
}

python3.11 -m venv --clear "$venv"
install_lock build
if [ -n "${TORCH_INDEX:-}" ] && ! compgen -G "$wheels/torch-*.whl" >/dev/null; then
    options+=(--extra-index-url "$TORCH_INDEX")
fi
# What is published as source only builds with the setuptools just installed, not with an unlocked one.
install_lock "$lock" --no-build-isolation --use-pep517
for lock in "${engines[@]}" ${tracing:+"$tracing"}; do
    install_lock "$lock"
done
