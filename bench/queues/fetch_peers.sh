#!/bin/sh
# Installs missing peers of the queue benchmark: RabbitMQ by
# apt-get, its load tool and ElasticMQ by Maven, NATS by Go. Reports and skips those that fail:
# `python -m bench.queues.run` measures the installed ones.
#
#     sh bench/queues/fetch_peers.sh        into $PENSTOCK_PEERS, else ~/.cache/penstock-peers
set -u
here=$(cd "$(dirname "$0")" && pwd)
peers=${PENSTOCK_PEERS:-$HOME/.cache/penstock-peers}
nats_version=v2.12.1
mkdir -p "$peers"

jars() { # name, directory
    [ -e "$2/complete" ] && return
    echo "fetching the jars of $1 (once)"
    if mvn -q -B -f "$here/jars/$1.xml" dependency:copy-dependencies "-DoutputDirectory=$2"; then
        touch "$2/complete"
    else
        echo "without $1: Maven could not fetch it" >&2
    fi
}

rabbitmq() {
    [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && return
    as_root=""
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    echo "installing rabbitmq-server (once)"
    # The benchmark starts its own broker: the package's need not run.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 $as_root apt-get install -y -qq \
        --no-install-recommends rabbitmq-server ||
        echo "without RabbitMQ: apt-get could not install it" >&2
}

nats() {
    [ -x "$peers/bin/nats-server" ] && return
    go=$(command -v go || echo /usr/local/go/bin/go)
    echo "building nats-server $nats_version (once)"
    GOBIN="$peers/bin" CGO_ENABLED=0 "$go" install "github.com/nats-io/nats-server/v2@$nats_version" ||
        echo "without NATS: Go could not build it" >&2
}

jars elasticmq "$peers/elasticmq"
jars perf-test "$peers/perf-test"
nats
rabbitmq
