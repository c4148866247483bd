#!/bin/sh
# Starts Prometheus in a container of docker compose: TARGETS are host:port of the servers of scrip, with a space between two.
# In a second run the files are written again.
set -eu
umask 077
printf %s "${SCRIP_CREDENTIALS%%:*}" >/tmp/user
printf %s "${SCRIP_CREDENTIALS#*:}" >/tmp/password
for target in $TARGETS; do
	printf '%s{"targets": ["%s"]}' "${separator:-[}" "$target"
	separator=,
done >/tmp/targets.json
echo ']' >>/tmp/targets.json
exec prometheus --config.file=/etc/prometheus/containers.yaml --storage.tsdb.path=/prometheus --storage.tsdb.retention.time=15d
