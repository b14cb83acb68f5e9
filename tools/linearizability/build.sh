#!/bin/sh
# Builds the checker of histories with Go into .cache/linearizability, named by the version of
# Porcupine pinned in go.mod and a checksum of its source. Fast if it exists. Prints the
# path of the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's|^require github.com/anishathalye/porcupine v||p' "$here/go.mod")
sum=$(cat "$here"/*.go "$here/go.mod" | cksum | cut -d' ' -f1)
built="$here/../../.cache/linearizability/$version-$sum/check"
if [ -x "$built" ]; then
    echo "$built"
    exit 0
fi

go=$(command -v go || true)
[ -n "$go" ] || { [ ! -x /usr/local/go/bin/go ] || go=/usr/local/go/bin/go; }
if [ -z "$go" ]; then
    echo "Histories are checked by Porcupine, a Go program: install Go (https://go.dev/dl)." >&2
    exit 1
fi
echo "building the checker of histories with $("$go" version | cut -d' ' -f3)" >&2
mkdir -p "$(dirname "$built")"
# Built under a temporary name: two builds may run at once.
cd "$here"
if ! CGO_ENABLED=0 "$go" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$built.$$" .; then
    rm -f "$built.$$"
    echo "The checker could not be built: it needs the Go version that go.mod names, and the Go" >&2
    echo "module proxy." >&2
    exit 1
fi
mv "$built.$$" "$built"
echo "$built"
