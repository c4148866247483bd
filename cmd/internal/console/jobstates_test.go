package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// TestEveryStateOfAJob: the page of a job of each state, with each progress and each result that it may have or lack, has its state, its
// reason, and a button to stop it while it can be stopped. What is not known is not 0.
func TestEveryStateOfAJob(t *testing.T) {
	c := &Console{routes: map[string]*api.Route{}, acts: map[string]*act{}}
	for _, r := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		c.routes[r.ID] = &r
	}
	for i := range acts {
		c.acts[acts[i].id] = &acts[i]
	}
	progress := map[string]*ops.JobProgress{
		"none": nil, "empty": {}, "no phase": {Done: 3, Total: 10}, "no total": {Phase: "loading", Done: 3},
		"whole": {Phase: "loading", Done: 3, Total: 10, Events: 5},
	}
	started := time.Date(2026, 6, 1, 9, 30, 0, 0, time.UTC)
	check := func(job ops.Job, of string) {
		d := jobData{Part: Part[ops.Job]{Data: job}}
		d.complete()
		v := &view{c: c, r: httptest.NewRequest(http.MethodGet, "/jobs/"+job.ID, nil), Who: access.Local("ann"), Data: d}
		is := fmt.Sprintf("%s %s, progress %s, result %q, stopped by %q", job.Action, job.State, of, job.Result, job.StoppedBy)
		var b bytes.Buffer
		if err := templates["job"].ExecuteTemplate(&b, "main", v); err != nil {
			t.Fatalf("%s: %v", is, err)
		}
		text := b.String()
		_, far, _ := strings.Cut(text, "<h2>Progress</h2>")
		far, _, _ = strings.Cut(far, "</p>")
		stoppable := !job.Ended() && job.StoppedBy == ""
		switch {
		case !strings.Contains(text, ">"+string(job.State)+"</span>"), !strings.Contains(text, job.Error), !strings.Contains(text, job.StoppedBy):
			t.Errorf("%s: no state, reason or name in %s", is, text)
		case strings.Contains(text, "/acts/stopJob") != stoppable:
			t.Errorf("%s: the button to stop it: %s", is, text)
		case (job.Progress == nil || job.Progress.Total == 0) && (strings.Contains(far, "<progress") || strings.Contains(far, " 0")):
			t.Errorf("%s: what is not known is shown: %s", is, far)
		case strings.Contains(string(job.Result), "behind") != strings.Contains(text, "unknown"):
			t.Errorf("%s: how far tables were behind: %s", is, text)
		}
	}
	for _, state := range ops.JobStates {
		for _, action := range []string{"rebuild.start", "verify.start", "backup.start", "coupons.void", "coupons.extend"} {
			for of, p := range progress {
				for _, result := range []string{"", "null", "{}", `{"behind":null}`} {
					kind, _, _ := strings.Cut(action, ".")
					job := ops.Job{ID: kind + "-x", Kind: kind, Action: action, State: state, By: "ann", Error: "the reason", Started: started,
						Updated: started.Add(time.Minute), Progress: p, Request: []byte(`{"campaign":"c","dry_run":true}`), Result: json.RawMessage(result)}
					check(job, of)
					job.StoppedBy = "sue"
					check(job, of)
				}
			}
		}
	}
}
