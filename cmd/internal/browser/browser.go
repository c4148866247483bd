// Package browser gives tests a Chromium without a window.
//
//	test ──> chromedp ──pipe──> Chromium ──> server under test, and no other host
//
// A browser and its profile belong to the test that opens it. Where the test crashes, the kernel ends the browser.
package browser

import (
	"context"
	"embed"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Open starts a browser with one tab for two minutes at most, and skips the test where there is none. Errors in the console, uncaught
// exceptions and breaches of the content security policy fail the test at its end, except those that contain one of expected.
func Open(t *testing.T, expected ...string) context.Context {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	found := slices.IndexFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if found < 0 {
		t.Skip("there is no Chromium on this machine; docker/setup.sh bench installs it")
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute) // t's own has ended when its cleanups run
	// To root chromedp gives --no-sandbox, without which it does not start. A proxy would look up names itself.
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(chromedp.ExecPath(names[found]), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")))
	messages := chromedp.Console(ctx) // starts it; its error is the first message
	t.Cleanup(func() {
		defer func() { cancel(); stop() }()
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[*int](`console.debug("the test ends")`)); err != nil {
			cancel() // no message comes any more
		}
		for m, err := range messages {
			if m.Text == "the test ends" {
				return
			} else if err != nil || (m.IsException() || m.Type == "error") && !slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(m.Text, s) }) {
				t.Errorf("%s:%d: %s %v", m.URL, m.Line+1, m, err)
			}
		}
	})
	return ctx
}

//go:embed package.json package-lock.json
var axe embed.FS

// Axe returns the script of axe-core, which finds what people with disabilities cannot use: evaluate it in a page, then axe.run().
// npm keeps it in its cache; without npm or a registry the test is skipped.
func Axe(t *testing.T) string {
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000")
	npm.Dir = t.TempDir()
	_ = os.CopyFS(npm.Dir, axe)
	out, _ := npm.CombinedOutput()
	script, err := os.ReadFile(npm.Dir + "/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skipf("npm cannot install axe-core: %v\n%s", err, out)
	}
	return string(script)
}
