package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Level is how bad a finding is.
type Level string

// The levels. Fail: scrip does not start, does not work, or may lose what it answered. Warn: it works, not as well as it could.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// What was found.
	What string `json:"what"`
	// Fix is what to do; empty if all is well.
	Fix string `json:"fix,omitempty"`
}

// Options name the deployment. They are the flags of `scrip serve`.
type Options struct {
	// Data is the data directory.
	Data string
	// NATS and Postgres are URLs of external servers; "" = the embedded ones, or those of the server that runs on Data.
	NATS, Postgres string
	// NATSListen and HTTPListen are HOST:PORT.
	NATSListen, HTTPListen string
	// Monitor is the URL of a NATS server's monitoring port, which shows its configuration; "" = none.
	Monitor string
	// NATSOptions are of the servers' connections to NATS: TLS, credentials that are not in the URL.
	NATSOptions []nats.Option
	// As is the user whose rights to examine: a key, or NATS URLs with credentials; "" = none.
	As string
	// Clock is the machine's clock. Defaults to wall.Machine.
	Clock wall.Clock

	wait time.Duration // for an answer; 0 = answerWait
	only string        // the one check that is made; "" = all. A test asks for one: each takes its time on a machine.
}

// visit is one examination.
type visit struct {
	Options
	server  datadir.Descriptor
	running bool      // a server runs on Data
	began   time.Time // by Options.Clock
	started time.Time // with the monotonic reading, which cannot be set
}

// check examines one thing. An empty list means that there was nothing to examine.
type check struct {
	name string
	run  func(v *visit, ctx context.Context) []Finding
}

// checks in the order in which they run and are shown.
var checks = []check{
	{"data", (*visit).data},
	{"disk", (*visit).disk},
	{"space", (*visit).space},
	{"memory", (*visit).memory},
	{"files", (*visit).files},
	{"ports", (*visit).ports},
	{"nats", (*visit).nats},
	{"postgres", (*visit).postgres},
	{"rights", (*visit).rights},
	{"clock", (*visit).clock}, // last: it looks at how the clocks went meanwhile
}

// Run examines a deployment. A check that cannot be made is a finding.
func Run(ctx context.Context, o Options) ([]Finding, error) {
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	if o.wait == 0 {
		o.wait = answerWait
	}
	v := &visit{Options: o, began: o.Clock.Now(), started: time.Now()}
	switch server, err := datadir.Find(o.Data); {
	case err == nil:
		v.server, v.running = server, server.Alive()
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ENOTDIR):
		return nil, err
	}
	var all []Finding
	for _, c := range checks {
		if o.only != "" && o.only != c.name {
			continue
		}
		for _, f := range c.run(v, ctx) {
			f.Check = c.name
			all = append(all, f)
		}
		if err := ctx.Err(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Worst is the worst level of all findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		if f.Level == Fail || worst == OK {
			worst = f.Level
		}
		if worst == Fail {
			break
		}
	}
	return worst
}

func good(format string, args ...any) []Finding {
	return []Finding{{Level: OK, What: fmt.Sprintf(format, args...)}}
}

func bad(level Level, fix, format string, args ...any) []Finding {
	return []Finding{{Level: level, What: fmt.Sprintf(format, args...), Fix: fix}}
}
