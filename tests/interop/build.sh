#!/bin/sh
# Fetches and builds the clients of other languages, in the versions that are pinned beside this file.
# usage: sh tests/interop/build.sh <folder>
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
to=$1
mkdir -p "$to"

missing=
for tool in java mvn go python3 node npm; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    echo "interop: these are needed and missing:$missing" >&2
    exit 1
fi

# quietly(what command...): what it says is shown when it fails.
quietly() {
    echo "== interop: $1"
    shift
    "$@" >"$to/log" 2>&1 || {
        cat "$to/log" >&2
        exit 1
    }
}

java() {
    quietly "Redisson $2, Jedis" mvn -B -q -f "$here/java/pom.xml" "-Dredisson.version=$2" "-Dinterop.build=$to/java-$1" package
}
java 3 3.52.0
java 4 4.7.0

go_build() {
    rm -rf "$to/go/source"
    mkdir -p "$to/go/source"
    cp "$here"/go/* "$to/go/source/"
    cd "$to/go/source"
    go build -o "$to/go/peer" .
}
quietly 'redigo, go-zero, redsync' go_build

python_build() {
    [ -e "$to/python/bin/python" ] || python3 -m venv "$to/python"
    "$to/python/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
}
quietly 'redis-py, python-redis-lock' python_build

node_build() {
    mkdir -p "$to/node"
    cp "$here"/node/* "$to/node/"
    cd "$to/node"
    npm ci --no-audit --no-fund --loglevel=error
}
quietly 'node-redlock, redis-semaphore' node_build
rm -f "$to/log"
