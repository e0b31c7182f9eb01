#!/bin/sh
# Format the data directory if that was not done yet, and run the node.
# VOTERS is the list of the first controllers, as for 'odradek format -I'; a single node needs none.
set -eu
config=${CONFIG:-/etc/odradek/server.properties}
if [ -n "${VOTERS:-}" ]; then
    odradek format --config "$config" --cluster-id "$CLUSTER_ID" --initial-controllers "$VOTERS" --ignore-formatted
fi
exec odradek broker --config "$config" "$@"
