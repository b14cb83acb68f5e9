#!/bin/sh
# Installs what the client tests run and pip cannot bring: kcat, a JDK and Maven.
# Fast when everything is there. Ends with an error that says what to do when it cannot.
set -eu

missing=""
command -v kcat >/dev/null 2>&1 || missing="$missing kcat"
command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Client tests need:$missing. No apt-get here: install them with your package manager." >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "Client tests need:$missing. Run as root: apt-get install -y$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # the package names are meant to be split
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing; }; then
    echo "apt-get could not install$missing; the client tests cannot run without them." >&2
    exit 1
fi
