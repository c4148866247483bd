package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed-4a2410e3/scrip/cmd/internal/browser"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestOpenHandsOverAFile: no program gets the token as an argument; the browser gets a file that only this user can
// read, and which is removed.
func TestOpenHandsOverAFile(t *testing.T) {
	bin, run := t.TempDir(), t.TempDir()
	streamtest.Must(t, os.Chmod(run, 0o700))
	argv, opened, end := filepath.Join(bin, "argv"), filepath.Join(bin, "opened"), filepath.Join(bin, "end")
	streamtest.Must(t, syscall.Mkfifo(opened, 0o600))
	streamtest.Must(t, syscall.Mkfifo(end, 0o600))
	sh, err := exec.LookPath("sh")
	streamtest.Must(t, err)
	for name, then := range map[string]string{
		"xdg-open": `printf %s "$1" >"` + opened + `"`, "open": `printf %s "$1" >"` + opened + `"`, "sleep": `cat "` + end + `"`, "sh": `exec ` + sh + ` "$@"`, "rm": `exec /bin/rm "$@"`, "cat": `exec /bin/cat "$@"`,
	} {
		script := "#!" + sh + "\nprintf '%s\\n' \"$0 $*\" >>\"" + argv + "\"\n" + then + "\n"
		streamtest.Must(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
	}
	t.Setenv("PATH", bin)
	t.Setenv("DISPLAY", ":0")
	t.Setenv("XDG_RUNTIME_DIR", run)
	const token = "SECRETTOKEN"
	remover, err := hand(link{"http://127.0.0.1:8080/shop/login?token=" + token, time.Now().Add(time.Minute)})
	streamtest.Must(t, err)
	at, err := os.ReadFile(opened)
	streamtest.Must(t, err)
	file := string(at)
	page, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(page), `action="http://127.0.0.1:8080/shop/login/link"`) || !strings.Contains(string(page), `value="`+token+`"`) {
		t.Errorf("%s: %s, %v", file, page, err)
	}
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want || filepath.Dir(filepath.Dir(file)) != run {
			t.Errorf("%s: %v, %v; want %v in %s", path, info.Mode(), err, want, run)
		}
	}
	streamtest.Must(t, os.WriteFile(end, nil, 0))
	streamtest.Must(t, remover.Wait())
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", run, left, err)
	}
	if ran, err := os.ReadFile(argv); err != nil || strings.Contains(string(ran), token) || strings.Count(string(ran), "\n") < 4 {
		t.Errorf("programs ran so: %s, %v", ran, err)
	}
}

// TestABrowserLogsInByTheFile: a page of a file logs in without a click.
func TestABrowserLogsInByTheFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a browser elsewhere may not read the file")
	}
	p := shared(t)
	made, err := url.Parse(p.must("open", "--no-browser")["url"].(string))
	streamtest.Must(t, err)
	file := filepath.Join(t.TempDir(), "open.html")
	streamtest.Must(t, writeHandover(file, made.String()))
	ctx := browser.Open(t, "404 (Not Found)") // favicon.ico
	streamtest.Must(t, chromedp.Do(ctx, chromedp.Navigate("file://"+file)))
	streamtest.Eventually(t, "the console's first page", func() bool {
		at, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + " " + document.querySelectorAll("form[action$=logout]").length`))
		return err == nil && at == made.Scheme+"://"+made.Host+"/ 1"
	})
}

// TestNoArgumentIsASecret: all users of the machine can read the arguments of a server and of the programs that it
// runs.
func TestNoArgumentIsASecret(t *testing.T) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if len(files) == 0 || err != nil {
		t.Skip("the arguments of programs are in /proc on Linux")
	}
	p := shared(t)
	key, err := os.ReadFile(filepath.Join(p.Data, "code.key"))
	streamtest.Must(t, err)
	secrets := []string{strings.TrimSpace(string(key))}
	for _, at := range []string{p.ready().HTTPURL, p.ready().NATSURL, p.ready().PostgresURL} {
		u, err := url.Parse(at)
		streamtest.Must(t, err)
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, password)
		}
	}
	if files, err = filepath.Glob("/proc/[0-9]*/cmdline"); err != nil || len(secrets) < 3 {
		t.Fatalf("%d secrets, %v", len(secrets), err)
	}
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for i, secret := range secrets {
			if strings.Contains(string(args), secret) {
				t.Errorf("%s has secret %d", file, i)
			}
		}
	}
}
