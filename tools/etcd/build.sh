#!/bin/sh
# Provides a recent etcd: one on the PATH (or $PENSTOCK_ETCD), else the version pinned
# in go.mod, built with Go into .cache/etcd. Fast if it exists; prints the remedy on failure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's|^require go.etcd.io/etcd/server/v3 v||p' "$here/go.mod")
built="$here/../../.cache/etcd/$version/etcd"

for found in "${PENSTOCK_ETCD:-}" "$(command -v etcd || true)"; do
    [ -n "$found" ] || continue
    case $("$found" --version 2>/dev/null | sed -n 's/^etcd Version: //p') in
        3.[6-9].* | 3.[1-9][0-9].* | [4-9].*) exit 0 ;;
    esac
done
[ -x "$built" ] && exit 0

go=$(command -v go || true)
[ -n "$go" ] || { [ ! -x /usr/local/go/bin/go ] || go=/usr/local/go/bin/go; }
if [ -z "$go" ]; then
    echo "The tests need etcd 3.6 or newer and there is none on the PATH. Install it from" >&2
    echo "https://github.com/etcd-io/etcd/releases, or install Go (https://go.dev/dl) and etcd" >&2
    echo "$version is built from source." >&2
    exit 1
fi
echo "building etcd $version with $("$go" version | cut -d' ' -f3) (about a minute, once)"
mkdir -p "$(dirname "$built")"
# Built under a temporary name: two builds may run at once.
cd "$here"
if ! CGO_ENABLED=0 "$go" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$built.$$" .; then
    rm -f "$built.$$"
    echo "etcd $version could not be built: it needs the Go version that go.mod names, and the" >&2
    echo "Go module proxy. Or install etcd 3.6 or newer and put it on the PATH." >&2
    exit 1
fi
mv "$built.$$" "$built"
