package power

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// most is the number of claims that clients make in a round.
const most = 1500

// claims: nothing but load.
func (w *world) claims() {
	w.cutAfter(w.steps(8000), func() <-chan struct{} { return w.answersLoad() })
	w.up()
}

func (w *world) answersLoad() <-chan struct{} { return w.load.allow(1 + w.rng.IntN(most)) }

// firstStart: a server on a new data directory, cut while it makes everything, starts, serves, is cut under load, and has what
// it answered.
func (w *world) firstStart() {
	w.cut() // the other server is in the way: its changes would be counted
	data, port := w.name("first"), streamtest.Address(w.t)
	start := func() *e2e.Process { return w.start(data, "--nats-listen", port) }
	w.cutAfter(w.steps(30_000), func() <-chan struct{} { return readyOrGone(start()) })
	d := w.ready(start())
	a := e2e.NewLedger()
	l := w.apply(d.NATSURL, a)
	w.cutAfter(w.steps(3000), func() <-chan struct{} { return l.allow(most / 3) })
	d = w.ready(start())
	claims, redeemed := a.Answers()
	w.judge(d.NATSURL, claims, redeemed)
	l.end()
	w.migrated(data)
	w.must("verify", "--data", w.path(data))
	w.first += len(claims)
	w.cut()
	w.discard(data)
	w.up()
}

// migrated waits until the server has made the read tables: it is ready before, because claims do not need them.
func (w *world) migrated(data string) {
	w.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		var status struct {
			DeadLetters *map[string]any `json:"dead_letters"`
		}
		c := w.run("status", "-o", "json", "--data", w.path(data))
		if c.code == 0 && json.Unmarshal(c.out.Bytes(), &status) == nil && status.DeadLetters != nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no read tables after %s: %s", limit, c.out.String())
		}
	}
}

// readyOrGone is closed when a server has become ready, or has ended.
func readyOrGone(p *e2e.Process) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.Ready() // while the file system is frozen it waits
	}()
	return done
}

func (w *world) discard(name string) {
	if err := errors.Join(os.RemoveAll(w.path(name)), atomicfile.SyncDir(w.fs.Dir)); err != nil {
		w.t.Error(err)
	}
}

// restart: the server is cut while it starts, once or several times.
func (w *world) restart() {
	<-w.answersLoad()
	w.cut()
	for range 1 + w.rng.IntN(2) {
		w.cutAfter(w.steps(3000), func() <-chan struct{} { return readyOrGone(w.serve()) })
	}
	w.up()
}

// stop: a clean stop saves snapshots, and is cut while it does.
func (w *world) stop() {
	<-w.answersLoad()
	w.cutAfter(w.steps(1500), func() <-chan struct{} {
		if err := w.main.Signal(syscall.SIGTERM); err != nil {
			w.t.Error(err)
		}
		return w.main.Gone()
	})
	w.up()
}

// backupMade is a whole backup and what was answered before it was started.
type backupMade struct {
	name             string
	claims, redeemed map[string]string
}

// kept is the directory of a backup.
func (w *world) kept(b backupMade) string { return w.path("scrip/backups/" + b.name) }

// backup: the directory is whole or absent, whole if the command ended well; where it is absent the same command makes it.
func (w *world) backup() {
	made := backupMade{name: w.name("backup")}
	made.claims, made.redeemed = w.got.Answers()
	make := func() []string { return []string{"backup", made.name, "--data", w.path("scrip")} }
	var c *command
	w.cutAfter(w.steps(1200), func() <-chan struct{} {
		w.load.allow(1 + w.rng.IntN(most))
		c = w.launch(make()...)
		return c.done
	})
	<-c.done
	w.up()
	_, err := os.Lstat(w.kept(made))
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.code == 0:
		w.t.Errorf("after %d cuts: the backup %s was made and is absent", w.cuts, made.name)
	case errors.Is(err, fs.ErrNotExist):
		w.insist(make()...)
	case err != nil:
		w.t.Error(err)
	}
	w.backups = append(w.backups, made)
	w.whole(made)
}

// whole restores a backup where nothing is cut, and looks for what was answered before it was started.
func (w *world) whole(b backupMade) {
	to := w.name("checked")
	w.insist("restore", w.kept(b), "--data", w.path(to))
	w.holds(to, b)
	w.discard(to)
}

// holds starts a server without tables on a restored directory.
func (w *world) holds(data string, b backupMade) {
	p := w.start(data, "--nats-listen", "127.0.0.1:0", "--roles", "lanes,api")
	d := w.ready(p)
	w.judge(d.NATSURL, b.claims, b.redeemed)
	if code, err := p.Stop(); code != 0 || err != nil {
		w.t.Errorf("a clean stop: %d, %v", code, err)
	}
}

// restore: either everything is restored, or no server starts on the directory and the same command restores it.
func (w *world) restore() {
	if len(w.backups) == 0 {
		w.backup()
	}
	b := w.backups[w.rng.IntN(len(w.backups))]
	w.cut()
	to := w.name("restored")
	make := []string{"restore", w.kept(b), "--data", w.path(to)}
	var c *command
	w.cutAfter(w.steps(600), func() <-chan struct{} {
		c = w.launch(make...)
		return c.done
	})
	<-c.done
	whole := exists(w.path(to) + "/nats")
	if c.code == 0 && !whole {
		w.t.Errorf("after %d cuts: %s was restored and has no log", w.cuts, to)
	}
	if !whole {
		if exists(w.path(to) + "/code.key") {
			p := w.start(to, "--nats-listen", "127.0.0.1:0", "--roles", "lanes,api")
			if _, err := p.Ready(); err == nil {
				w.t.Errorf("after %d cuts: a server started on half a restore", w.cuts)
				_, _ = p.Stop()
			}
		}
		w.insist(make...)
	}
	w.holds(to, b)
	w.discard(to)
	w.up()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// replay: a replay to a file that is cut goes on, and at the end the file equals one that was never interrupted.
func (w *world) replay() {
	out := w.path("events.ndjson")
	var c *command
	var claimed <-chan struct{}
	w.cutAfter(w.steps(2000), func() <-chan struct{} {
		c = w.launch("replay", "--name", "copy", "--out", out, "--follow", "--data", w.path("scrip"))
		claimed = w.answersLoad()
		return claimed
	})
	<-c.done
	w.up()
	<-claimed
	w.quiet()
	w.must("replay", "--name", "copy", "--out", out, "--data", w.path("scrip"))
	fresh := w.path(w.name("fresh"))
	w.must("replay", "--out", fresh, "--data", w.path("scrip"))
	have, want := w.lanes(out), w.lanes(fresh)
	for lane, lines := range want {
		for i, line := range lines {
			if i >= len(have[lane]) || have[lane][i] != line {
				w.t.Fatalf("after %d cuts lane %d of the replay differs at line %d of %d (it has %d): not %s", w.cuts, lane, i, len(lines), len(have[lane]), line)
			}
		}
		if len(have[lane]) > len(lines) {
			w.t.Fatalf("after %d cuts lane %d of the replay has %d lines, not %d", w.cuts, lane, len(have[lane]), len(lines))
		}
	}
	if err := os.Remove(fresh); err != nil {
		w.t.Error(err)
	}
}

// quiet waits until the log does not grow any more: commands of before the cut are still decided.
func (w *world) quiet() {
	deadline := time.Now().Add(limit)
	for last := -1; ; {
		n := len(strings.Split(w.must("replay", "--data", w.path("scrip")), "\n"))
		if n == last {
			return
		}
		if last = n; time.Now().After(deadline) {
			w.t.Fatal("the log goes on growing")
		}
	}
}

// lanes are the lines of a replay, by lane.
func (w *world) lanes(path string) map[int][]string {
	raw, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[int][]string{}
	for line := range strings.Lines(string(raw)) {
		var at struct{ Lane int }
		if err := json.Unmarshal([]byte(line), &at); err != nil {
			w.t.Fatalf("%s holds %q: %v", path, line, err)
		}
		all[at.Lane] = append(all[at.Lane], line)
	}
	return all
}
