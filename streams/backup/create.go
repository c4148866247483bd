package backup

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// tries is how often a part is copied before the backup fails: leaders change, connections break.
	tries = 3
	// lockPatience is how long to wait for another backup of the same lane.
	lockPatience = 2 * time.Minute
	// infoWait bounds the requests before the copying.
	infoWait = time.Minute
	// compressed is the part of a stream's bytes that its copy takes at least, by estimate. A copy that takes more is stopped when
	// the disk's reserve is reached.
	compressed = 0.25
)

// CreateOptions for Create.
type CreateOptions struct {
	// Key is the log's code key. Files are encrypted with a key that is derived from it.
	Key [32]byte
	// WithoutKey leaves the code key out of the directory: then the files can be read with a key from elsewhere alone.
	WithoutKey bool
	// Version is the version of the program that takes the backup, and Server the name in the record of it; "" = the machine's.
	Version, Server string
	// Progress is called, now and then and by several goroutines, with the number of the streams' bytes that have been copied.
	// A stream counts with the bytes sent, which are compressed, until it is complete, then with its own. done may decrease when
	// a part is copied again, and total is that of the start.
	Progress func(done, total int64)
	// Logger defaults to slog.Default.
	Logger *slog.Logger

	window int // bytes in flight of one copy, so that a small log has more; 0 = the server's default
}

// Create copies the log that js leads to into a new directory, while servers use it. The directory gets its name only when
// it is complete and on disk; after an error there is none.
func Create(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	return create(ctx, js, w, opts, nil)
}

func create(ctx context.Context, js jetstream.JetStream, w *workdir, opts CreateOptions, hook func(stream string) error) (m *Manifest, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, w.discard())
		}
	}()
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	c := &creator{js: js, dir: w, opts: opts, hook: hook}
	if err := c.identify(ctx); err != nil {
		return nil, err
	}
	// State and snapshots first: the snapshots that the state names are copied after it, or were replaced by ones that are; and the
	// events continue further.
	parts := [][]string{{topology.StateStream}, {topology.SnapStream}}
	for _, name := range c.optional {
		parts = append(parts, []string{name})
	}
	for _, part := range parts {
		if err := c.retried(ctx, part, func(ctx context.Context) error { return c.plain(ctx, part[0]) }); err != nil {
			return nil, err
		}
	}
	for lane := range c.m.Lanes {
		if err := c.retried(ctx, laneStreams(lane), func(ctx context.Context) error { return c.lane(ctx, lane) }); err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane, err)
		}
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	// From here on the backup is good. Without its record an older one counts as the last, which alarms and loses nothing.
	if err := recordOf(c.m, c.dir.final, cmp.Or(opts.Server, hostname())).store(ctx, js); err != nil {
		opts.Logger.Warn("the backup is good; status and metrics show an older one, or none", "dir", c.dir.final, "err", err)
	}
	return c.m, nil
}

// creator is one run of Create.
type creator struct {
	js   jetstream.JetStream
	dir  *workdir
	opts CreateOptions
	m    *Manifest
	log  topology.Log
	box  *seal.Box
	hook func(stream string) error // for tests: called when the copying of a stream has started; nil = nothing

	optional []string // streams that the log has, of those it may be without

	done  atomic.Int64
	total int64
}

// identify reads the log's identity, and checks that it is complete.
func (c *creator) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, infoWait)
	defer cancel()
	log, found, err := topology.Inspect(ctx, c.js)
	switch {
	case err != nil:
		return err
	case !found:
		return errors.New("there is no log on this NATS server, so nothing to back up")
	}
	if have := code.Fingerprint(c.opts.Key); have != log.KeyFingerprint {
		return fmt.Errorf("the code key given has fingerprint %s, but the log was created with %s; give that one", have, log.KeyFingerprint)
	}
	c.log, c.box = log.WithKey(c.opts.Key), newBox(c.opts.Key, log.UUID)
	c.m = &Manifest{
		Format: Format, Log: log.UUID, Lanes: log.Lanes, KeyFingerprint: log.KeyFingerprint, LogFormat: log.Format, LogCreated: log.Created.UTC(),
		Started: time.Now().UTC().Truncate(time.Millisecond), Scrip: c.opts.Version, NATS: c.js.Conn().ConnectedServerVersion(), Key: !c.opts.WithoutKey,
	}
	for _, name := range optional {
		switch stream, err := c.js.Stream(ctx, name); {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return fmt.Errorf("reading stream %s: %w", name, err)
		case stream.CachedInfo().State.Msgs > 0:
			c.optional = append(c.optional, name)
		}
	}
	for _, name := range streamNames(log.Lanes, func(name string) bool { return slices.Contains(c.optional, name) }) {
		stream, err := c.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("stream %s is missing: the log is incomplete, and a backup would be, too; start a server, its error names the next step", name)
		}
		if err != nil {
			return fmt.Errorf("reading stream %s: %w", name, err)
		}
		c.total += int64(stream.CachedInfo().State.Bytes)
	}
	return c.dir.disk.Fits(int64(compressed * float64(c.total)))
}

// retried copies a part, and copies it again if the transfer broke.
func (c *creator) retried(ctx context.Context, part []string, take func(context.Context) error) error {
	for try := 1; ; try++ {
		before, had := c.done.Load(), len(c.m.Streams)
		err := take(ctx)
		if err == nil || try == tries || ctx.Err() != nil || !errors.Is(err, ErrInterrupted) {
			return err
		}
		c.opts.Logger.Warn("copied again", "part", part[0], "try", try, "err", err)
		c.done.Store(before)
		c.m.Streams = c.m.Streams[:had]
		for _, name := range part {
			s := Stream{Name: name}
			if err := errors.Join(c.dir.remove(s.data()), c.dir.remove(s.info())); err != nil {
				return err
			}
		}
	}
}

func (c *creator) start(ctx context.Context, name string) (*snapshot, error) {
	s, err := start(ctx, c.js, name, c.opts.window)
	if err != nil || c.hook == nil {
		return s, err
	}
	if err := c.hook(name); err != nil {
		s.drop()
		return nil, err
	}
	return s, nil
}

// plain copies a stream that belongs to no lane.
func (c *creator) plain(ctx context.Context, name string) error {
	s, err := c.start(ctx, name)
	if err != nil {
		return err
	}
	st, err := c.receive(ctx, s)
	if err != nil {
		return err
	}
	c.m.Streams = append(c.m.Streams, st)
	return nil
}

// lane copies a lane's three streams. Each is started when the one before has been, and so has its end. The lock against purges
// is released after the last command: commands are few, and the events may take far longer.
func (c *creator) lane(ctx context.Context, lane int) error {
	held, err := lease.TakeLock(ctx, c.js, lease.PurgeLock(lane), "a backup on "+hostname(), lockPatience)
	if err != nil {
		var other *lease.LockedError
		if errors.As(err, &other) {
			return fmt.Errorf("%w; wait for that backup, or until it has been dead for %s", err, lease.LockTTL)
		}
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	holding, stopHolding := context.WithCancel(ctx)
	group.Go(func() error {
		lost := held.Run(holding)
		if err := held.Release(context.WithoutCancel(ctx)); err != nil && lost == nil {
			c.opts.Logger.Debug("releasing the lock failed; it expires", "err", err)
		}
		if lost != nil {
			return fmt.Errorf("%w: %w", ErrInterrupted, lost)
		}
		return nil
	})
	streams := make([]Stream, 0, 3)
	copied := make([]Stream, 3)
	var failed error
	for i, name := range laneStreams(lane) {
		s, err := c.start(ctx, name)
		if err != nil {
			failed = err
			break
		}
		bounds, err := s.info.bounds()
		if err != nil {
			s.drop()
			failed = fmt.Errorf("reading where stream %s ends: %w", name, err)
			break
		}
		streams = append(streams, Stream{Name: name, First: bounds.First, Last: bounds.Last})
		commands := i == 2
		group.Go(func() error {
			if commands {
				defer stopHolding()
			}
			st, err := c.receive(ctx, s)
			if err == nil && commands {
				err = c.continues(ctx, lane, streams, bounds)
			}
			copied[i] = st
			return err
		})
	}
	if failed != nil {
		stopHolding()
	}
	if err := group.Wait(); failed == nil || err != nil && errors.Is(failed, context.Canceled) {
		failed = err
	}
	stopHolding()
	if failed != nil {
		return failed
	}
	c.m.Streams = append(c.m.Streams, copied...)
	return nil
}

// continues checks that the copied commands continue where the copied events end, and that no later command was purged while
// it was copied. The lock prevents that; if the lock expired, this check finds out.
//
// A backup copies bytes: a message at the end of a stream that cannot be read is copied and listed in the manifest, and is no
// error. Which commands it covers is not known then, so nothing is checked.
func (c *creator) continues(ctx context.Context, lane int, copied []Stream, commands bounds) error {
	fired, err := eventlog.Reminders(c.js, lane).In(c.log).TailAt(ctx, copied[0].Last)
	if err != nil {
		return err
	}
	tail, err := eventlog.Events(c.js, lane).In(c.log).TailAt(ctx, copied[1].Last)
	if err != nil {
		return err
	}
	c.unread(tail.Unread, fired.Unread)
	covered := uint64(0)
	if tail.Message != nil {
		covered = tail.Message.Next() - 1
	}
	if len(tail.Unread) > 0 {
		return nil
	}
	if commands.First > covered+1 {
		return fmt.Errorf("the events cover commands up to %d, but the commands start at %d; if `scrip status` reports that the lane has stopped, resolve that first, else take the backup again", covered, commands.First)
	}
	now, err := eventlog.Commands(c.js, lane).Bounds(ctx)
	if err != nil {
		return err
	}
	if now.First != commands.First { // also where they are covered: the copy may not start at its recorded sequence, and a restore would refuse it
		return fmt.Errorf("%w: commands up to %d were purged while they were copied from %d on, and the events cover them up to %d", ErrInterrupted, now.First-1, commands.First, covered)
	}
	return nil
}

// unread records messages that were copied and cannot be read, once also if a lane is copied again.
func (c *creator) unread(lists ...[]eventlog.Unread) {
	for _, u := range slices.Concat(lists...) {
		if !slices.Contains(c.m.Unread, u) {
			c.m.Unread = append(c.m.Unread, u)
		}
	}
}

// receive writes a copy's two files.
func (c *creator) receive(ctx context.Context, s *snapshot) (Stream, error) {
	b, err := s.info.bounds()
	if err != nil {
		s.drop()
		return Stream{}, err
	}
	if _, differs := c.log.AsMade(s.name, s.info.Config); len(differs) > 0 {
		s.drop()
		return Stream{}, fmt.Errorf("%s: scrip restore would refuse such a stream, so this is no backup; correct the stream, "+
			"`scrip doctor` names what differs, and take the backup again", strings.Join(differs, ", "))
	}
	st := Stream{Name: s.name, Messages: b.Messages, Bytes: b.Bytes, First: b.First, Last: b.Last}
	info, err := json.Marshal(s.info)
	if err != nil {
		s.drop()
		return Stream{}, err
	}
	if _, err := c.encrypted(st.info(), func(to io.Writer) error {
		_, err := to.Write(append(info, '\n'))
		return err
	}); err != nil {
		s.drop()
		return Stream{}, err
	}
	var received int64
	st.Size, err = c.encrypted(st.data(), func(to io.Writer) (err error) {
		received, err = s.receive(ctx, to, c.copied)
		return err
	})
	s.drop()
	if err == nil {
		c.copied(int64(b.Bytes) - received)
	}
	return st, err
}

// encrypted makes a file that can be read with the key of the log's backups alone, and returns its size.
func (c *creator) encrypted(name string, fill func(io.Writer) error) (size int64, err error) {
	return c.dir.write(name, func(to io.Writer) error { return encrypt(to, c.box, name, fill) })
}

func (c *creator) copied(n int64) {
	done := c.done.Add(n)
	if c.opts.Progress != nil {
		c.opts.Progress(done, max(c.total, done))
	}
}

// finish writes the files that mark the backup as complete.
func (c *creator) finish() error {
	if !c.opts.WithoutKey {
		if err := c.dir.bytes(keyFile, []byte(hex.EncodeToString(c.opts.Key[:])+"\n")); err != nil {
			return err
		}
	}
	c.m.Ended = time.Now().UTC().Truncate(time.Millisecond)
	manifest, err := c.m.encode()
	if err != nil {
		return err
	}
	if err := c.dir.bytes(manifestFile, manifest); err != nil {
		return err
	}
	return c.dir.finish(c.log.Seal)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "another machine"
	}
	return name
}
