package main

import (
	"errors"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/logline"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) serveCommand() *cobra.Command {
	var o server.Options
	var lanes, replicas, conns, perAddress, natsConns, natsPending uint32
	var logFormat, logLevel string
	var console bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a server", Args: cli.NoArgs,
		Long: `Run a server. Without flags it has everything it needs: NATS with JetStream on 127.0.0.1:4222, a private PostgreSQL with
the read tables, the console, health and metrics on http://127.0.0.1:8080 (/ /healthz /readyz /metrics; "scrip open" logs a
browser in), all data below ./data. Once
it is ready, clients find it by the file scrip.json there.

Commands that have an outcome are on disk: they survive kill -9 and power loss. (--sync interval is faster and may lose the
last seconds on power loss; for development.) SIGTERM or Ctrl-C stop a server within seconds; a second signal kills it.

Codes are derived from the key in code.key, below the data directory. Keep a copy: without it no server starts on the log,
and a backup without the key cannot be decrypted.

NATS clients need the credentials that are created at the first start and stored in the file credentials, below the data
directory; scrip.json has a copy for scrip's own commands. "scrip env" prints them for other programs. --credentials sets
others. To change them, edit or remove the file and start again.

Every flag can be given as a variable: SCRIP_DATA, SCRIP_NATS_LISTEN, … SCRIP_CODE_KEY holds the code key instead of
the file, SCRIP_PG_BIN the directory of PostgreSQL's programs. A variable with _FILE after its name, such as
SCRIP_POSTGRES_FILE, names a file that holds the value; command lines can be read by every user of a machine.`,
		Example: `  scrip serve
  scrip serve --data /srv/scrip --nats-listen 127.0.0.1:4333 --http-listen 127.0.0.1:8181
  scrip serve --nats nats://nats.internal:4222 --postgres postgres://scrip:…@db.internal/scrip --replicas 3
  scrip serve --nats nats://nats.internal:4222 --roles projector --postgres postgres://scrip:…@db.internal/scrip`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Postgres, "postgres", "", "`URL` of an existing database for the read tables; absent = a private PostgreSQL")
	f.StringVar(&o.PostgresListen, "postgres-listen", "", "`HOST:PORT` of the private PostgreSQL, for analysts on other machines with --tls-cert; port 0 = one that is kept (default: loopback, and that port)")
	f.StringVar(&o.TablesDir, "tables-dir", "", "`DIR` of the private PostgreSQL, on another disk than the log; empty at first, and remembered (default: in the data directory)")
	f.Var(&cli.Value{Text: "lanes,scheduler,projector,api", Kind: "LIST", Parse: func(s string) (err error) {
		o.Roles, err = server.ParseRoles(s)
		return err
	}}, "roles", "roles of this server, of lanes,scheduler,projector,api")
	f.StringVar(&o.NATSListen, "nats-listen", natsd.DefaultListen, "`HOST:PORT` of the embedded NATS server; port 0 = any free one")
	f.Var(cli.Number(&natsConns, 0, 64, 1<<20), "nats-connections", "clients of the embedded NATS server; one key may have 1/32 of them, scrip status has the others (default: half of the files that may be open, 16384 at most)")
	f.Var(cli.Number(&natsPending, natsd.DefaultPending>>20, 1, 1<<20), "nats-pending", "MiB of answers that may wait for the clients of one key")
	f.StringVar(&o.HTTPListen, "http-listen", server.DefaultHTTPListen, "`HOST:PORT` of health and metrics; port 0 = any free one")
	f.StringVar(&o.HTTPPrefix, "http-prefix", "", "`PATH` that all paths of pages start with, such as /coupons, where a proxy serves them below it")
	f.BoolVar(&console, "console", true, "serve the console at /")
	f.StringSliceVar(&o.HTTPHosts, "http-host", nil, "host `NAME`s allowed in HTTP requests, separated by commas, in addition to localhost and addresses")
	f.Var(networks((*[]netip.Prefix)(&o.HTTPProxies)), "http-trusted-proxies", "networks of proxies in front of HTTP whose X-Forwarded-For names the client, such as 10.0.0.0/24; several separated by commas")
	f.Var(cli.Number(&conns, 0, 1, 1_000_000), "http-connections", "open HTTP connections at most; beyond it only probes are answered (default 4096, or a quarter of the files the process may open)")
	f.Var(cli.Number(&perAddress, 0, 1, 1_000_000), "http-connections-per-address", "likewise of one client address, of IPv6 one /64, which is no trusted proxy (default half of all)")
	f.StringVar(&o.TLSCert, "tls-cert", "", "`FILE` with the certificate in PEM, its chain included, for HTTP and the embedded NATS; followed while the server runs")
	f.StringVar(&o.TLSKey, "tls-key", "", "`FILE` with its key in PEM")
	f.StringVar(&o.OpsListen, "ops-listen", "", "`HOST:PORT` of a listener of its own for metrics, profiles and details of readiness, on loopback without credentials")
	f.Var(cli.Number(&lanes, 0, 1, topology.MaxLanes), "lanes", "lanes of a new log, which never change (default 4, on an external NATS 16)")
	f.Var(cli.Number(&replicas, 0, 1, 5), "replicas", "copies of every stream on a NATS cluster (default 1)")
	f.Var(cli.Choice(&o.Sync, "", natsd.SyncAlways, natsd.SyncInterval), "sync", "always: outcomes are on disk (default). interval: may lose the last seconds on power loss")
	f.BoolVar(&o.Insecure, "insecure", false, "accept NATS clients without credentials if none are given, also from other machines")
	f.StringVar(&o.Credentials, "credentials", "", "`USER:PASSWORD` required of NATS clients and for /metrics, instead of those in the data directory; prefer SCRIP_CREDENTIALS")
	f.Var(cli.Duration(&o.ReminderGrace, wire.DefaultReminderGrace, time.Second, 365*24*time.Hour), "reminder-grace", "how late a reminder may fire although what it announces has passed, if scrip config sets no reminder.grace")
	f.Var(&cli.Value{Kind: "LANE[=SEQ]", Parse: func(s string) error { return parseRebase(s, &o) }}, "rebase", "once, after a restore: continue a stopped lane, after the last message of its command stream or at command SEQ")
	f.Var(&cli.Value{Kind: "LANE=SEQ", Parse: func(s string) error { return parseSkip(s, &o) }}, "skip-message", "permanently: add event message SEQ of a lane, which stops readers, to the skip list; rmd:LANE=SEQ for fired reminders")
	f.Var(networks(&o.WebhookAllow), "webhook-allow", "networks inside to which webhooks may go, on any port, such as 10.1.0.0/16; several separated by commas")
	f.StringVar(&o.Backups, "backups", "", "`DIR` in which scrip backup takes backups (default: backups, below the data directory)")
	f.BoolVar(&o.WebhookHTTP, "webhook-http", false, "let webhooks use http and port 80")
	f.Var(cli.Choice(&logFormat, "text", "text", "json"), "log-format", "text or json")
	f.Var(cli.Choice(&logLevel, "info", "debug", "info", "warn", "error"), "log-level", "debug, info, warn or error")
	cli.WithVariable(f)
	f.Lookup("rebase").Annotations = nil // for one start only
	f.Lookup("skip-message").Annotations = nil
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Data, o.NATS, o.Lanes, o.Replicas = m.global.data, m.global.nats, int(lanes), int(replicas)
		o.HTTPConns, o.HTTPConnsPerAddress = int(conns), int(perAddress)
		o.NATSConnections, o.NATSPending = int(natsConns), int(natsPending)
		var err error
		if o.CodeKey, err = datadir.Variable(m.Env, datadir.KeyVariable); err != nil {
			return &cli.UsageError{Err: err}
		}
		if o.SealKey, err = datadir.SealKey(m.Env, m.global.sealKey); err != nil {
			return &cli.UsageError{Err: err}
		}
		if o.NATSOptions, err = m.natsFlags.Options(); err != nil {
			return err
		}
		o.NATSCA = m.natsFlags.CA()
		o.Version, o.NoConsole = build().String(), !console
		if err := o.Validate(); err != nil {
			return &cli.UsageError{Err: err}
		}
		if _, set := m.Env("GOGC"); !set {
			debug.SetGCPercent(gcPercent)
		}
		var level slog.Level
		if err := level.UnmarshalText([]byte(logLevel)); err != nil {
			return err
		}
		ctx, log := cli.Serve(cmd, logline.Options{JSON: logFormat == "json", Level: level})
		o.Logger, o.LinesDropped = log.Logger(), log.Dropped
		return server.Run(ctx, o)
	}
	return cmd
}

// gcPercent replaces Go's GOGC default of 100: most of the heap is coupons, in pages without pointers, which are cheap
// to collect.
const gcPercent = 50

// parseRebase reads LANE or LANE=SEQ.
func parseRebase(s string, o *server.Options) error {
	number, at, given := strings.Cut(s, "=")
	n, err := strconv.Atoi(number)
	var seq uint64
	if given && err == nil {
		seq, err = strconv.ParseUint(at, 10, 64)
	}
	if err != nil || n < 0 || n >= topology.MaxLanes || given && seq == 0 {
		return errors.New("must be LANE or LANE=SEQ such as 2=1047")
	}
	if o.Rebase == nil {
		o.Rebase = map[int]uint64{}
	}
	o.Rebase[n] = seq
	return nil
}

// networks is a flag of networks separated by commas.
func networks(into *[]netip.Prefix) *cli.Value {
	return &cli.Value{Kind: "CIDR", Parse: func(s string) error {
		*into = nil
		for text := range strings.SplitSeq(s, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return errors.New("must be networks such as 10.1.0.0/16, separated by commas")
			}
			*into = append(*into, p.Masked())
		}
		return nil
	}}
}

// parseSkip reads LANE=SEQ or rmd:LANE=SEQ.
func parseSkip(s string, o *server.Options) error {
	rest, reminders := strings.CutPrefix(s, "rmd:")
	number, at, _ := strings.Cut(rest, "=")
	n, err := strconv.Atoi(number)
	seq, badSeq := strconv.ParseUint(at, 10, 64)
	if err != nil || badSeq != nil || n < 0 || n >= topology.MaxLanes || seq == 0 {
		return errors.New("must be LANE=SEQ such as 2=1047, or rmd:LANE=SEQ")
	}
	o.Skip = append(o.Skip, server.Skip{Lane: n, Sequence: seq, Reminders: reminders})
	return nil
}
