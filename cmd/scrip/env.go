package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
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

// link is a link that logs a browser in.
type link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires_at"`
}

// openCommand opens the console.
func (m *Main) openCommand() *cobra.Command {
	var noBrowser bool
	var at replayFlags
	cmd := &cobra.Command{
		Use: "open", Short: "Log a browser in to the console", Args: cli.NoArgs,
		Long: `Log a browser in to the console. The link is printed, and opened where there is a display. It works once, within a minute.

On the machine of a server it has the rights of an operator, without a key. With --key-file or SCRIP_KEY it has those of the key, which
may be of role analyst, support or operator; --http names a server elsewhere.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := m.remote(&at)
			if err == nil && to == nil {
				to, err = m.owned()
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), m.global.timeout)
			defer cancel()
			made, err := m.logInLink(ctx, to)
			if err != nil {
				return err
			}
			if !noBrowser {
				openBrowser(made.URL)
			}
			if m.global.output == outputJSON {
				return cli.JSON(m.Out, made)
			}
			_, err = fmt.Fprintln(m.Out, made.URL)
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&noBrowser, "no-browser", false, "print the link only")
	f.StringVar(&at.http, "http", "", "`URL` of a server, such as https://scrip.internal:8080, with a key (default: the one of --data)")
	f.StringVar(&at.keyFile, "key-file", "", "`FILE` with a key of role analyst, support or operator")
	idFlag(cmd, false)
	return cmd
}

// owned is the server of the data directory, with its credentials in the URL.
func (m *Main) owned() (*replay.Remote, error) {
	server, err := m.find()
	if err == nil && server.HTTPURL == "" {
		err = cli.Usagef("the console is on HTTP, and --nats names none; give --data DIR, or --http URL and --key-file FILE")
	}
	return remoteOf(server, ""), err
}

// logInLink has a server make a link.
func (m *Main) logInLink(ctx context.Context, to *replay.Remote) (made link, err error) {
	who, _ := json.Marshal(map[string]string{"name": userAtHost()}) // never fails
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL+"/v1/logins", bytes.NewReader(who))
	if err != nil {
		return made, cli.Usagef("--http: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if to.Key != "" {
		req.Header.Set("Authorization", "Bearer "+to.Key)
	}
	resp, err := to.Client.Do(req)
	if err != nil {
		return made, fmt.Errorf("no link was made: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Path, Code, Detail string
		Expires            time.Time `json:"expires_at"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer)
	switch {
	case err == nil && resp.StatusCode == http.StatusCreated:
		return link{natsx.WithoutUser(to.URL) + answer.Path, answer.Expires}, nil
	case answer.Code != "" && resp.StatusCode < 500:
		return made, m.refuse(wire.Refusal(answer.Code), "%s", answer.Detail)
	}
	return made, fmt.Errorf("no link was made: %s", cmp.Or(answer.Detail, resp.Status))
}

// openBrowser opens a page where there is a display. The link is printed anyway.
func openBrowser(url string) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	_ = exec.Command(program, url).Start()
}
