#!/usr/bin/env bash
# Builds the HTTP frontend: the jar, newer jars than TorchServe's, and Netty's native transport laid out as a plain file.
#
#   build.sh MODEL_SERVER_JAR OUTPUT_DIR
#
# OUTPUT_DIR/byoc-endpoints.jar   goes on the class path first
# OUTPUT_DIR/jars/                the files of ../jars, each checked against ../requirements/jars.txt: before model-server.jar
# OUTPUT_DIR/native/              goes into -Djava.library.path
#
# The native library must be a file of the image: Netty otherwise unpacks it into the temporary directory,
# and from a noexec one it does not load, which costs epoll and the Unix sockets to the workers without a word.
set -euo pipefail

fail() {
    echo "build.sh: $*" >&2
    exit 1
}

if [ "$#" -ne 2 ]; then
    echo "usage: build.sh MODEL_SERVER_JAR OUTPUT_DIR" >&2
    exit 2
fi
model_server_jar=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
sources=$here/src/main/java
lock=$here/../requirements/jars.txt
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT

rm -rf "$output/jars"
class_path=$model_server_jar
newer=()
for jar in "$here"/../jars/*.jar; do
    [ -e "$jar" ] || continue
    name=$(basename "$jar")
    checksum=$(awk -v name="$name" '$2 == name { print $1 }' "$lock")
    [ -n "$checksum" ] || fail "docker/jars/$name is not in docker/requirements/jars.txt: add its line there, or take the file away"
    sha256sum --check --status <<<"$checksum  $jar" ||
        fail "docker/jars/$name is not the file that docker/requirements/jars.txt names: its SHA-256 is not $checksum"
    install -D -m 0644 "$jar" "$output/jars/$name"
    class_path=$output/jars/$name:$class_path
    newer+=("$output/jars/$name")
done

# No warnings of paths: jars name others in their manifests that are not there.
find "$sources" -name '*.java' -print0 | sort -z |
    xargs -0 javac --release 17 -proc:none -Xlint:all,-path -Werror -encoding UTF-8 \
        -cp "$class_path" -d "$classes"
# log4j's class for Java 9 and later: model-server.jar holds it, but does not declare itself multi-release, and the one
# for Java 8 warns at every start. A log4j-api of its own does.
if ! compgen -G "$output/jars/log4j-api*.jar" >/dev/null; then
    java9=META-INF/versions/9
    (cd "$classes" && jar --extract --file "$model_server_jar" "$java9/org/apache/logging/log4j/util/StackLocator.class")
    cp -r "$classes/$java9/org" "$classes/"
fi
# A fixed date keeps two builds of the same sources identical.
jar --create --file "$output/byoc-endpoints.jar" --date=2024-01-01T00:00:00Z -C "$classes" byoc -C "$classes" org

case "$(uname -m)" in
    x86_64) cpu=x86_64 ;;
    aarch64) cpu=aarch_64 ;;
    *) fail "Netty has no epoll library for $(uname -m)" ;;
esac
library=META-INF/native/libnetty_transport_native_epoll_$cpu.so
# The library belongs to the classes that call it: one of another version loads, if at all, to fail later.
for jar in "${newer[@]}" "$model_server_jar"; do
    (cd "$classes" && jar --extract --file "$jar" "$library")
    [ ! -e "$classes/$library" ] || break
done
if [ "$jar" = "$model_server_jar" ] && compgen -G "$output/jars/netty-transport-*.jar" >/dev/null; then
    fail "docker/jars holds a netty-transport and no jar with $(basename "$library"): add netty-transport-native-epoll of that version"
fi
install -D -m 0755 "$classes/$library" "$output/native/$(basename "$library")"
