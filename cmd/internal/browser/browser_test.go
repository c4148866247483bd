package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const base = "SCRIP_TEST_PAGES"

// pages by their path: what each does wrong, and what fails a test that opens it.
var pages = map[string]struct{ body, failure string }{
	"/good":      {`<script src="/script.js"></script>`, ""},
	"/exception": {`<script src="/script.js?throw"></script>`, "exception: Uncaught Error: a script fails"},
	"/promise":   {`<script src="/script.js?reject"></script>`, "exception: Uncaught (in promise) Error: nothing catches it"},
	"/console":   {`<script src="/script.js?log"></script>`, "error: a script complains"},
	"/policy":    {`<script>document.title = "run"</script>`, "Content Security Policy"},
	"/outside":   {`<script src="http://cdn.example/x.js"></script>`, "ERR_NAME_NOT_RESOLVED"},
	"/missing":   {`<img src="/absent.png" alt="">`, ""}, // a 404, which is expected
}

// serve serves the pages. Chromium takes the word of a page that it has no icon.
func serve(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch page, ok := pages[r.URL.Path]; {
		case ok:
			w.Header().Set("Content-Security-Policy", "script-src 'self' http://cdn.example")
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Page</title><link rel="icon" href="data:,"><main><h1>Page</h1>%s</main>`, page.body)
		case r.URL.Path == "/script.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, map[string]string{"throw": `throw new Error("a script fails")`, "log": `console.error("a script complains")`,
				"reject": `Promise.reject(new Error("nothing catches it"))`}[r.URL.RawQuery])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestWhatFailsATest: a test fails by the errors of its pages, and by no others. It runs itself in another process.
func TestWhatFailsATest(t *testing.T) {
	if url := os.Getenv(base); url != "" {
		ctx := Open(t, "404 (Not Found)")
		for path := range pages {
			if err := chromedp.Do(ctx, chromedp.Navigate(url+path)); err != nil {
				t.Error(err)
			}
		}
		return
	}
	url := serve(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWhatFailsATest$", "-test.v")
	child.Env = append(os.Environ(), base+"="+url)
	raw, err := child.CombinedOutput()
	out := string(raw)
	if strings.Contains(out, "no Chromium") {
		t.Skip(out)
	}
	if err == nil {
		t.Error("it passed")
	}
	want := 0
	for path, page := range pages {
		if page.failure != "" {
			want++
		}
		if !strings.Contains(out, page.failure) {
			t.Errorf("%s did not fail the test by %q", path, page.failure)
		}
	}
	if got := strings.Count(out, "browser.go:"); got != want {
		t.Errorf("%d failures, want %d", got, want)
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestAxe(t *testing.T) {
	script, ctx := Axe(t), Open(t)
	if err := chromedp.Do(ctx, chromedp.Navigate(serve(t)+"/good")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ before, want string }{
		{"", ""},
		{`document.documentElement.lang = ""`, "html-has-lang"},
	} {
		found, err := chromedp.Run(ctx, chromedp.Evaluate[string](script+";"+c.before+`; axe.run().then(r => r.violations.map(v => v.id).join())`, chromedp.EvalAwaitPromise))
		if err != nil || found != c.want {
			t.Errorf("%q: %q, %v, want %q", c.before, found, err, c.want)
		}
	}
}
