#!/usr/bin/env bash
# Builds the HTTP frontend: the jar, and Netty's native transport laid out as a plain file.
#
#   build.sh MODEL_SERVER_JAR OUTPUT_DIR
#
# OUTPUT_DIR/byoc-endpoints.jar   goes on the class path before model-server.jar
# OUTPUT_DIR/native/              goes into -Djava.library.path
#
# The native library must be a file of the image: Netty otherwise unpacks it into the temporary directory,
# and from a noexec one it does not load, which costs epoll and the Unix sockets to the workers without a word.
set -euo pipefail

if [ "$#" -ne 2 ]; then
    echo "usage: build.sh MODEL_SERVER_JAR OUTPUT_DIR" >&2
    exit 2
fi
model_server_jar=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
sources=$(dirname "$(realpath "$0")")/src/main/java
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT

find "$sources" -name '*.java' -print0 | sort -z |
    xargs -0 javac --release 17 -proc:none -Xlint:all -Werror -encoding UTF-8 \
        -cp "$model_server_jar" -d "$classes"
# log4j's class for Java 9 and later: model-server.jar holds it, but does not declare itself multi-release, and the one
# for Java 8 warns at every start.
newer=META-INF/versions/9
(cd "$classes" && jar --extract --file "$model_server_jar" "$newer/org/apache/logging/log4j/util/StackLocator.class")
cp -r "$classes/$newer/org" "$classes/"
# A fixed date keeps two builds of the same sources identical.
jar --create --file "$output/byoc-endpoints.jar" --date=2024-01-01T00:00:00Z -C "$classes" byoc -C "$classes" org

case "$(uname -m)" in
    x86_64) cpu=x86_64 ;;
    aarch64) cpu=aarch_64 ;;
    *)
        echo "build.sh: Netty has no epoll library for $(uname -m)" >&2
        exit 1
        ;;
esac
library=libnetty_transport_native_epoll_$cpu.so
(cd "$classes" && jar --extract --file "$model_server_jar" "META-INF/native/$library")
install -D -m 0755 "$classes/META-INF/native/$library" "$output/native/$library"
