#!/usr/bin/env bash
# Checks that what scrip needs is on this machine and installs what it can: PostgreSQL's programs, by apt, as root or
# with sudo; called as `setup.sh bench` also what scrip does not need: redis-server, which is measured beside it, and
# strace, with which a test watches its fsyncs. Run by `make run`, and with those two by `make test` and `make bench`;
# running it again changes nothing.
set -euo pipefail
bench=${1:-}

say() { echo "setup: $*" >&2; }

need_go=1.26
if ! command -v go >/dev/null; then
	say "Go is missing; install Go $need_go or newer from https://go.dev/dl/"
	exit 1
fi
# `go env GOVERSION` is asked outside of the module, where no toolchain line can make it fetch another Go.
have_go=$(cd / && go env GOVERSION | sed -E 's/^go([0-9]+\.[0-9]+).*/\1/')
if [ "$(printf '%s\n%s\n' "$need_go" "$have_go" | sort -V | head -n1)" != "$need_go" ]; then
	if [ "$(go env GOTOOLCHAIN)" = local ]; then
		say "Go $have_go is too old; install Go $need_go or newer from https://go.dev/dl/"
		exit 1
	fi
	say "Go $have_go fetches the Go $need_go that go.mod asks for"
fi

# The same places that scrip looks in; see projections/pgd.
postgres_found() {
	if [ -n "${SCRIP_PG_BIN:-}" ]; then
		[ -x "$SCRIP_PG_BIN/initdb" ] && [ -x "$SCRIP_PG_BIN/postgres" ]
		return
	fi
	local dir
	for dir in "$(dirname "$(command -v postgres || echo /nowhere/postgres)")" "$(pg_config --bindir 2>/dev/null || echo /nowhere)" \
		/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin /usr/libexec/postgresql* /opt/homebrew/opt/postgresql*/bin \
		/usr/local/opt/postgresql*/bin /opt/local/lib/postgresql*/bin /Applications/Postgres.app/Contents/Versions/*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
	done
	return 1
}

strace_found() { [ "$bench" != bench ] || [ "$(uname -s)" != Linux ] || command -v strace >/dev/null; }
redis_found() { [ "$bench" != bench ] || command -v redis-server >/dev/null; }

missing=()
postgres_found || missing+=(postgresql)
redis_found || missing+=(redis-server)
strace_found || missing+=(strace)
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	say "missing: ${missing[*]}, and there is no apt-get; install it with this system's package manager (of PostgreSQL its programs initdb and postgres are what counts; SCRIP_PG_BIN may say where they are)"
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		say "missing: ${missing[*]}; run as root: apt-get install -y ${missing[*]}"
		exit 1
	fi
	as_root=(sudo)
	[ -t 0 ] || as_root=(sudo -n) # nobody there to type a password
fi
say "missing: ${missing[*]}; installing: ${as_root[*]} apt-get install -y ${missing[*]}"
# The packages would start servers of their own; scrip makes a private one, and so does scripbench.
"${as_root[@]}" mkdir -p /etc/postgresql-common
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	echo 'create_main_cluster = false' | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
if [[ " ${missing[*]} " == *" redis-server "* ]] && [ -d /run/systemd/system ]; then
	"${as_root[@]}" systemctl disable --now redis-server
fi
postgres_found || { say "postgresql was installed, but initdb is not where it was expected; set SCRIP_PG_BIN to its directory"; exit 1; }
redis_found || { say "redis-server was installed, but is not on PATH"; exit 1; }
