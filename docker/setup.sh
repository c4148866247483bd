#!/usr/bin/env bash
# Checks scrip's requirements and installs what is missing: PostgreSQL's programs, by apt, as root or with sudo.
# `setup.sh bench` also installs what scrip does not need: redis-server, which is measured too, strace, by which a test checks
# fsyncs, and Chromium with a font, in which tests open the console; without it they are skipped. `make run` runs the first
# form, `make test` and `make bench` the second; a second run changes nothing.
set -euo pipefail
bench=${1:-}

report() { echo "setup: $*" >&2; }

need_go=1.26
if ! command -v go >/dev/null; then
	report "Go is missing; install Go $need_go or newer from https://go.dev/dl/"
	exit 1
fi
# `go env GOVERSION` runs outside of the module, where no toolchain line can make it fetch another Go.
have_go=$(cd / && go env GOVERSION | sed -E 's/^go([0-9]+\.[0-9]+).*/\1/')
if [ "$(printf '%s\n%s\n' "$need_go" "$have_go" | sort -V | head -n1)" != "$need_go" ]; then
	if [ "$(go env GOTOOLCHAIN)" = local ]; then
		report "Go $have_go is too old; install Go $need_go or newer from https://go.dev/dl/"
		exit 1
	fi
	report "Go $have_go fetches Go $need_go, which go.mod requires"
fi

# The directories that scrip searches; see projections/pgd.
postgres_found() {
	if [ -n "${SCRIP_PG_BIN:-}" ]; then
		[ -x "$SCRIP_PG_BIN/initdb" ] && [ -x "$SCRIP_PG_BIN/pg_ctl" ] && [ -x "$SCRIP_PG_BIN/postgres" ]
		return
	fi
	local dir
	for dir in "$(dirname "$(command -v postgres || echo /nowhere/postgres)")" "$(pg_config --bindir 2>/dev/null || echo /nowhere)" \
		/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin /usr/libexec/postgresql* /opt/homebrew/opt/postgresql*/bin \
		/usr/local/opt/postgresql*/bin /opt/local/lib/postgresql*/bin /Applications/Postgres.app/Contents/Versions/*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/postgres" ] && return 0
	done
	return 1
}

strace_found() { [ "$bench" != bench ] || [ "$(uname -s)" != Linux ] || command -v strace >/dev/null; }
redis_found() { [ "$bench" != bench ] || command -v redis-server >/dev/null; }

# The names by which cmd/internal/browser looks for it.
chromium_found() { [ "$bench" != bench ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

missing=()
postgres_found || missing+=(postgresql)
redis_found || missing+=(redis-server)
strace_found || missing+=(strace)
if [ ${#missing[@]} -eq 0 ] && chromium_found; then
	exit 0
fi
# Nothing else needs Chromium: where it cannot be installed, the rest goes on.
no_chromium() {
	report "$1; tests of the console in a browser are skipped. They look for chromium, chromium-browser or google-chrome on PATH"
	exit 0
}
if ! command -v apt-get >/dev/null; then
	[ ${#missing[@]} -ne 0 ] || no_chromium "Chromium is missing, and there is no apt-get"
	report "missing: ${missing[*]}, and there is no apt-get; install it with this system's package manager (of PostgreSQL the programs initdb, pg_ctl and postgres are needed; SCRIP_PG_BIN may name their directory)"
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		[ ${#missing[@]} -ne 0 ] || no_chromium "Chromium is missing; run as root: apt-get install -y chromium fonts-dejavu-core"
		report "missing: ${missing[*]}; run as root: apt-get install -y ${missing[*]}"
		exit 1
	fi
	as_root=(sudo)
	[ -t 0 ] || as_root=(sudo -n) # without a terminal, no password can be typed
fi
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"; }
if [ ${#missing[@]} -ne 0 ]; then
	report "missing: ${missing[*]}; installing: ${as_root[*]} apt-get install -y ${missing[*]}"
	# Without this the packages would start servers; scrip and scripbench start private ones.
	"${as_root[@]}" mkdir -p /etc/postgresql-common
	if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		echo 'create_main_cluster = false' | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
	fi
	"${as_root[@]}" apt-get update -q
	install "${missing[@]}"
	if [[ " ${missing[*]} " == *" redis-server "* ]] && [ -d /run/systemd/system ]; then
		"${as_root[@]}" systemctl disable --now redis-server
	fi
	postgres_found || { report "postgresql was installed, but initdb was not found; set SCRIP_PG_BIN to its directory"; exit 1; }
	redis_found || { report "redis-server was installed, but is not on PATH"; exit 1; }
fi
if ! chromium_found; then
	report "missing: Chromium; installing: ${as_root[*]} apt-get install -y chromium fonts-dejavu-core"
	"${as_root[@]}" apt-get update -q || no_chromium "apt-get update failed, and Chromium is missing"
	apt-cache show chromium >/dev/null 2>&1 || no_chromium "apt has no package chromium here"
	install chromium fonts-dejavu-core || no_chromium "apt cannot install chromium"
fi
