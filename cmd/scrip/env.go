package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// envCommand prints, for a shell, how other programs reach the server.
func (m *Main) envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "env", Short: "Print how psql and NATS clients reach the server, for a shell", Args: cli.NoArgs,
		Long: `Print how psql and NATS clients reach the server, as variables for a POSIX shell. They hold passwords: evaluate the
output, do not store it.

NATS_URL is complete, so that nats.Connect(os.Getenv("NATS_URL")) needs nothing else, unless the certificate of NATS is signed
by a CA that the system does not know: NATS_CA is its file. NATS_USER and NATS_PASSWORD repeat what the nats command line reads. PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE are read by psql and by every program
that uses libpq.`,
		Example: `  eval "$(scrip env)"
  nats sub 'scrip.evt.*'
  psql -c 'select * from scrip.campaign'`,
		RunE: func(*cobra.Command, []string) error {
			server, err := m.find()
			if err != nil {
				return err
			}
			list, err := environment(server)
			if err != nil {
				return err
			}
			return m.printEnvironment(list)
		},
	}
	idFlag(cmd, false)
	return cmd
}

// setting is one variable. An empty one is unset, so that no value of another server remains.
type setting struct{ name, value string }

// environment is how other programs reach a server: its NATS with the first credentials in the list of URLs, and its tables.
func environment(server datadir.Descriptor) ([]setting, error) {
	all, err := natsx.URLs(server.NATSURL)
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	var user *url.Userinfo // nil has no name and no password
	for _, u := range all {
		user = cmp.Or(user, u.User)
	}
	password, _ := user.Password()
	tables, err := libpq(server.PostgresURL)
	return append([]setting{{"NATS_URL", server.NATSURL}, {"NATS_CA", cmp.Or(server.NATSCA, server.NATSCert)}, {"NATS_USER", user.Username()}, {"NATS_PASSWORD", password}}, tables...), err
}

// libpqVariables are the parameters of a PostgreSQL URL that libpq also reads from the environment.
var libpqVariables = []struct{ parameter, variable string }{
	{"sslmode", "PGSSLMODE"}, {"sslrootcert", "PGSSLROOTCERT"}, {"sslcert", "PGSSLCERT"}, {"sslkey", "PGSSLKEY"},
	{"channel_binding", "PGCHANNELBINDING"}, {"target_session_attrs", "PGTARGETSESSIONATTRS"}, {"options", "PGOPTIONS"},
}

// libpq turns a URL into the variables of PostgreSQL's own clients. It returns none for "", the URL where there are no
// tables: variables that are set belong to another database.
func libpq(text string) ([]setting, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the URL of PostgreSQL is invalid")
	}
	q := u.Query()
	var hosts, ports []string
	for one := range strings.SplitSeq(u.Host, ",") {
		host, port, err := net.SplitHostPort(one)
		if err != nil {
			host, port = strings.Trim(one, "[]"), ""
		}
		hosts, ports = append(hosts, host), append(ports, cmp.Or(port, "5432"))
	}
	password, _ := u.User.Password()
	list := []setting{
		{"PGHOST", cmp.Or(strings.Join(hosts, ","), q.Get("host"))},
		{"PGPORT", strings.Join(ports, ",")},
		{"PGUSER", cmp.Or(u.User.Username(), q.Get("user"))},
		{"PGPASSWORD", cmp.Or(password, q.Get("password"))},
		{"PGDATABASE", cmp.Or(strings.TrimPrefix(u.Path, "/"), q.Get("dbname"))},
	}
	if u.Host == "" && q.Get("port") != "" {
		list[1].value = q.Get("port")
	}
	for _, v := range libpqVariables {
		if value := q.Get(v.parameter); value != "" {
			list = append(list, setting{v.variable, value})
		}
	}
	return list, nil
}

func (m *Main) printEnvironment(list []setting) error {
	if m.global.output == outputJSON {
		all := map[string]string{}
		for _, s := range list {
			if s.value != "" {
				all[s.name] = s.value
			}
		}
		return json.NewEncoder(m.Out).Encode(all)
	}
	var text strings.Builder
	for _, s := range list {
		if s.value == "" {
			fmt.Fprintf(&text, "unset %s\n", s.name)
			continue
		}
		fmt.Fprintf(&text, "export %s=%s\n", s.name, shellQuote(s.value))
	}
	if f, ok := m.Out.(*os.File); ok && cli.IsTerminal(f) {
		text.WriteString("# Run: eval \"$(scrip env)\"\n")
	}
	_, err := io.WriteString(m.Out, text.String())
	return err
}

// shellQuote quotes a text as one word of a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
