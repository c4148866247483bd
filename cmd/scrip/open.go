package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

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
		Long: `Log a browser in to the console. A link is printed that works once, within a minute. Where there is a display, xdg-open (macOS: open) opens
a page that logs in with it, if it is installed. A browser in a sandbox (snap, flatpak) may not find that page: open the link.

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
				if _, err := hand(made); err != nil {
					fmt.Fprintln(m.Err, "no browser was opened:", err)
				}
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

// hand hands the link to a browser where there is a display: in a file that only this user can read, since all users of
// the machine can read the arguments of a program. Its page posts the token. The file is removed when the token is too
// old; after a crash before that it stays, with a token that is of no use. The link is printed anyway, for browsers in
// a sandbox that hides the file.
func hand(made link) (remover *exec.Cmd, err error) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return nil, nil
	}
	if program, err = exec.LookPath(program); err != nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp(runtimeDir(), "scrip-open-") // 0700
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "open.html")
	if err = writeHandover(file, made.URL); err == nil {
		err = exec.Command(program, file).Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	left := max(0, time.Until(made.Expires)) + time.Second
	remover = exec.Command("sh", "-c", `sleep "$1"; rm -rf -- "$2"`, "sh", strconv.Itoa(int(left/time.Second)), dir)
	remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the terminal
	return remover, remover.Start()
}

// runtimeDir is the user's directory for files of a session, if there is one; "" = that for temporary files.
func runtimeDir() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return ""
	}
	return dir
}

// handover is the page of the file. Without script its button does the same.
var handover = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>scrip</title>
<form method="post" action="{{.Action}}"><input type="hidden" name="token" value="{{.Token}}"><button>Log in to scrip</button></form>
<script>document.forms[0].submit()</script>
</html>
`))

func writeHandover(file, link string) error {
	u, err := url.Parse(link)
	if err != nil {
		return err
	}
	token := u.Query().Get("token")
	u.RawQuery, u.Path = "", u.Path+"/link"
	var page bytes.Buffer
	if err := handover.Execute(&page, struct{ Action, Token string }{u.String(), token}); err != nil {
		return err
	}
	return os.WriteFile(file, page.Bytes(), 0o600)
}
