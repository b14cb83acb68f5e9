#!/bin/sh
# Installs what the tests run and pip cannot bring: kcat, a JDK and Maven for the client tests,
# ip, with which the chaos tests make networks of their own, libfaketime, with which histories step
# clocks, PostgreSQL and Redis for the stores, promtool, which reads our alerts, Chromium, in
# which the console is tried, and systemd, which reads our unit.
# Fast when everything is there. Ends with an error that says what to do when it cannot.
set -eu

missing=""
command -v kcat >/dev/null 2>&1 || missing="$missing kcat"
command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
command -v faketime >/dev/null 2>&1 || missing="$missing faketime"
command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v systemd-analyze >/dev/null 2>&1 || missing="$missing systemd"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1 ||
    missing="$missing postgresql"
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests need:$missing. No apt-get here: install them with your package manager." >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "The tests need:$missing. Run as root: apt-get install -y$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # the package names are meant to be split
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing; }; then
    echo "apt-get could not install$missing; the tests cannot run without them." >&2
    exit 1
fi
