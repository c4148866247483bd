package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// currentWait bounds how long the copies on other nodes may take to catch up, and settleWait is how long they must have.
	currentWait = time.Hour
	settleWait  = 2 * time.Second
	pollEvery   = 100 * time.Millisecond
	// configWait bounds one request for a stream that may never answer.
	configWait = 5 * time.Second
	// cleanWait bounds the removal of what a failed restore made.
	cleanWait = time.Minute
)

// ErrNotEmpty: the server holds a log, or part of one.
var ErrNotEmpty = errors.New("the NATS server is not empty")

// RestoreOptions for Restore.
type RestoreOptions struct {
	// Replicas of every stream and bucket, 1 to 5; 0 = as they were.
	Replicas int
	// WithoutWebhooks leaves out the webhooks, and the positions and dead letters of webhooks and push senders: for a
	// restore beside the log that the backup is of, which goes on delivering.
	WithoutWebhooks bool
	// Disk is that of the NATS server, where it is known; nil = it is not.
	Disk *room.Disk
	// Progress is called with the number of bytes of the backup's files that have been sent.
	Progress func(done, total int64)
	// Logger defaults to slog.Default.
	Logger *slog.Logger

	patience time.Duration // with another restore, in case it is dead; shorter in tests
}

// Restore puts a backup on the NATS server that js leads to, which must hold no log. It returns when every copy on every
// node has everything. After an error nothing of it is left, or what is left carries a mark that prevents servers from
// starting on it and makes the next Restore remove it.
func (b *Backup) Restore(ctx context.Context, js jetstream.JetStream, opts RestoreOptions) error {
	return b.restore(ctx, js, opts, func(string) {})
}

func (b *Backup) restore(ctx context.Context, js jetstream.JetStream, opts RestoreOptions, hook func(at string)) error {
	opts.Logger, opts.patience = cmp.Or(opts.Logger, slog.Default()), cmp.Or(opts.patience, lease.LockTTL+2*time.Second)
	r := &restorer{js: js, b: b, opts: opts, id: uuid.NewString(), hook: hook}
	held, err := r.only(ctx)
	if err != nil {
		return err
	}
	holding, stopHolding := context.WithCancel(ctx)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		err := held.Run(holding)
		if err != nil {
			cancel(fmt.Errorf("another restore may have started: %w", err))
		}
		ended <- err
	}()
	err = r.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	stopHolding()
	if lost := <-ended; lost != nil {
		return err // the streams may be another restore's by now
	}
	// Cancelled or not, the streams of this restore are removed, and the lock is released.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cleanWait)
	defer done()
	if err != nil && r.started {
		if dirty := r.clean(ctx, r.id); dirty != nil {
			err = fmt.Errorf("%w (and what was restored so far could not be removed: %w; the next `scrip restore` does that)", err, dirty)
		}
	}
	if failed := held.Release(ctx); failed != nil {
		opts.Logger.Debug("releasing the lock failed; it expires", "err", failed)
	}
	return err
}

// restorer is one run of Restore.
type restorer struct {
	js      jetstream.JetStream
	b       *Backup
	opts    RestoreOptions
	id      string // of this restore
	started bool   // streams of this restore may exist
	done    int64
	hook    func(at string) // for tests: called when the first bytes of a stream have been sent, and before the end
}

// only makes sure that no other restore is running. The lease bucket, which holds the lock for that, has no state: it may
// exist already, and it stays.
func (r *restorer) only(ctx context.Context) (*lease.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, infoWait)
	defer cancel()
	config := topology.LeaseConfig(r.replicas())
	if _, err := r.js.Stream(ctx, config.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := r.js.CreateStream(ctx, config); err != nil {
			return nil, fmt.Errorf("making stream %s: %w%s", config.Name, err, hint(err))
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading stream %s: %w", config.Name, err)
	}
	held, err := lease.TakeLock(ctx, r.js, lease.RestoreLock, "a restore on "+hostname(), r.opts.patience)
	var other *lease.LockedError
	if errors.As(err, &other) {
		return nil, fmt.Errorf("%w; wait for it, a server runs one restore at a time", err)
	}
	return held, err
}

// replicas returns the number of copies for what did not come from the backup.
func (r *restorer) replicas() int {
	if r.opts.Replicas > 0 {
		return r.opts.Replicas
	}
	return max(1, r.b.infos[0].Config.Replicas)
}

func (r *restorer) run(ctx context.Context) error {
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	need := uint64(0)
	for _, s := range r.b.Streams {
		need += s.Bytes
	}
	if err := r.opts.Disk.Fits(int64(need)); err != nil {
		return err
	}
	// The state bucket is the first to exist and the last to be finished: while its stream carries the mark, no server accepts
	// the log. A crash from here on leaves the mark.
	for i, s := range r.b.Streams {
		if r.leavesOut(s) {
			continue
		}
		metadata := map[string]string{topology.MetaRestored: r.id}
		if s.Name == topology.StateStream {
			metadata[topology.MetaRestoring] = r.id
		}
		if err := r.stream(ctx, s, r.b.infos[i], metadata); err != nil {
			return err
		}
	}
	if err := r.settled(ctx); err != nil {
		return err
	}
	if err := r.lease(ctx); err != nil {
		return err
	}
	r.hook("the end")
	record := recordOf(&r.b.Manifest, r.b.dir, hostname())
	record.Restored = true
	if err := record.store(ctx, r.js); err != nil {
		return err
	}
	return r.finish(ctx)
}

func (r *restorer) leavesOut(s Stream) bool {
	return r.opts.WithoutWebhooks && slices.Contains(deliveries, s.Name)
}

// makeRoom refuses a server that holds a log; streams of an interrupted restore are removed.
func (r *restorer) makeRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*infoWait)
	defer cancel()
	state, err := r.state(ctx)
	switch id := state.Metadata[topology.MetaRestoring]; {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return fmt.Errorf("reading stream %s: %w%s", topology.StateStream, err, hint(err))
	case id != "":
		r.opts.Logger.Warn("removing what an interrupted restore left", "restore", id)
		if err := r.clean(ctx, id); err != nil {
			return fmt.Errorf("removing what an interrupted restore left: %w; run `scrip restore` again", err)
		}
	}
	names, err := r.names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isOurs(name) {
			continue
		}
		whose := "part of a log"
		if log, found, err := topology.Inspect(ctx, r.js); err == nil && found {
			if whose = "log " + log.UUID; log.UUID == r.b.Log {
				whose += ", the one that the backup is of"
			}
		}
		return fmt.Errorf("%w: it holds stream %s, %s; restore to another server, or, if that log is to be given up, stop all scrip servers, remove the streams whose names contain SCRIP_, and run `scrip restore` again", ErrNotEmpty, name, whose)
	}
	return nil
}

// state reads the settings of the state bucket's stream. On a cluster its leader may not know a stream yet that the list of
// streams has: an interrupted restore has just started it, and its mark decides.
func (r *restorer) state(ctx context.Context) (jetstream.StreamConfig, error) {
	for {
		names, err := r.names(ctx)
		if err != nil {
			return jetstream.StreamConfig{}, err
		}
		config, err := r.config(ctx, topology.StateStream)
		if !errors.Is(err, jetstream.ErrStreamNotFound) || !slices.Contains(names, topology.StateStream) {
			return config, err
		}
		if natsx.Pause(ctx, pollEvery) != nil {
			return config, context.Cause(ctx)
		}
	}
}

// stream restores one stream and checks that it is complete. It is restored with one copy and gets more then: restored with
// three at once, the others count as current before they have anything, and a crash of the leader then loses all of it.
// grow waits until each new copy has reported its progress itself.
func (r *restorer) stream(ctx context.Context, s Stream, info streamInfo, metadata map[string]string) error {
	config := with(info.Config, metadata)
	config.Replicas = 1
	read := func(n int) {
		if r.done += int64(n); r.opts.Progress != nil {
			r.opts.Progress(r.done, r.b.Size())
		}
	}
	data, err := r.b.decrypted(ctx, s.data(), s.Size, 0, read)
	if err != nil {
		return err
	}
	defer data.Close()
	r.started = true
	have, err := upload(ctx, r.js, s.Name, streamInfo{Config: config, State: info.State}, data, r.opts.Disk, func() { r.hook(s.Name) })
	if err != nil {
		return fmt.Errorf("restoring stream %s: %w%s", s.Name, err, hint(err))
	}
	if err := r.complete(s, have); err != nil {
		return err
	}
	if have.Consumers > 0 {
		return fmt.Errorf("restoring stream %s: %s has %d consumers, and scrip copies none: use another backup", s.Name, s.data(), have.Consumers)
	}
	return r.grow(ctx, s, config)
}

// grow requests more copies of a stream. They are made while the next stream is restored.
func (r *restorer) grow(ctx context.Context, s Stream, config jetstream.StreamConfig) error {
	if config.Replicas = r.replicas(); config.Replicas == 1 {
		return nil
	}
	if err := r.update(ctx, config); err != nil {
		return fmt.Errorf("giving stream %s %d copies: %w%s", s.Name, r.replicas(), err, hint(err))
	}
	return nil
}

// complete compares the restored stream with the backup. Producers may publish commands after it.
func (r *restorer) complete(s Stream, have bounds) error {
	if have.Last >= s.Last && (slices.Contains(changing, s.Name) || have.Messages >= s.Messages && (s.Messages == 0 || have.First == s.First)) {
		return nil
	}
	return fmt.Errorf("restoring stream %s: it holds %d messages, %d to %d, the backup %d, %d to %d; use another backup", s.Name, have.Messages, have.First, have.Last, s.Messages, s.First, s.Last)
}

// settled waits until all copies of all streams have everything, and have had it for a moment: a node that has just got the
// leader's state counts as current until it asks for the messages.
func (r *restorer) settled(ctx context.Context) error {
	settle := time.Duration(0)
	if r.replicas() > 1 {
		settle = settleWait
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for began, since := time.Now(), time.Now(); ; {
		for _, s := range r.b.Streams {
			if r.leavesOut(s) {
				continue
			}
			ok, err := r.current(ctx, s)
			switch {
			case err != nil:
				return err
			case !ok && time.Since(began) > currentWait:
				return fmt.Errorf("stream %s: not all of its copies are current after %s; check that all NATS nodes are up", s.Name, currentWait)
			case !ok:
				since = time.Now()
			}
		}
		if time.Since(since) >= settle {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// current reports whether all copies of a stream have everything, as far as its leader knows.
func (r *restorer) current(ctx context.Context, s Stream) (bool, error) {
	var info copies
	err := request(ctx, r.js, "STREAM.INFO."+s.Name, struct{}{}, &info)
	switch {
	case err == nil && info.current() >= r.replicas():
		return true, r.complete(s, info.State)
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && !unanswered(err):
		return false, fmt.Errorf("reading stream %s: %w", s.Name, err)
	}
	return false, nil
}

// copies is what a stream's leader knows of its copies.
type copies struct {
	State   bounds `json:"state"`
	Cluster *struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool   `json:"current"`
			Offline bool   `json:"offline"`
			Lag     uint64 `json:"lag"`
		} `json:"replicas"`
		// Desired is present while copies are added.
		Desired json.RawMessage `json:"desired"`
	} `json:"cluster"`
}

// current counts the copies that have everything. While the stream grows that is one.
func (c *copies) current() int {
	if c.Cluster == nil {
		return 1
	}
	n := 0
	if c.Cluster.Leader != "" {
		n++
	}
	if len(c.Cluster.Desired) > 0 {
		return min(n, 1)
	}
	for _, peer := range c.Cluster.Replicas {
		if peer.Current && !peer.Offline && peer.Lag == 0 {
			n++
		}
	}
	return n
}

// lease gives a lease bucket that existed before as many copies as the other streams.
func (r *restorer) lease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	kv, err := r.js.KeyValue(ctx, topology.LeaseBucket)
	if err != nil {
		return fmt.Errorf("reading bucket %s: %w", topology.LeaseBucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("reading bucket %s: %w", topology.LeaseBucket, err)
	}
	if config := status.Config(); config.Replicas != r.replicas() {
		config.Replicas = r.replicas()
		if _, err := r.js.UpdateKeyValue(ctx, config); err != nil {
			return fmt.Errorf("giving bucket %s %d copies: %w", topology.LeaseBucket, config.Replicas, err)
		}
	}
	return nil
}

// finish removes the mark, in one write: from then on this is the log.
func (r *restorer) finish(ctx context.Context) error {
	var have streamInfo
	if err := request(ctx, r.js, "STREAM.INFO."+topology.StateStream, struct{}{}, &have); err != nil {
		return fmt.Errorf("finishing the restore: %w", err)
	}
	delete(have.Config.Metadata, topology.MetaRestoring)
	if err := r.update(ctx, have.Config); err != nil {
		return fmt.Errorf("finishing the restore: %w", err)
	}
	return nil
}

// update changes a stream's configuration. It is idempotent, so a request that met an election is repeated.
func (r *restorer) update(ctx context.Context, config jetstream.StreamConfig) error {
	for try := 1; ; try++ {
		var answer streamInfo
		err := request(ctx, r.js, "STREAM.UPDATE."+config.Name, config, &answer)
		if err == nil || try == tries || ctx.Err() != nil || !unanswered(err) {
			return err
		}
	}
}

// clean removes the streams that a restore made, identified by its id: the marked one last, so that a crash in between leaves
// the mark.
func (r *restorer) clean(ctx context.Context, id string) error {
	for {
		ours, err := r.made(ctx, id)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			break
		}
		for _, name := range ours {
			if err := r.remove(ctx, name); err != nil {
				return err
			}
		}
	}
	state, err := r.config(ctx, topology.StateStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading stream %s: %w", topology.StateStream, err)
	case state.Metadata[topology.MetaRestoring] != id:
		return nil
	}
	if err := r.remove(ctx, topology.StateStream); err != nil {
		return err
	}
	// On a cluster a node answers before the meta leader, which lists the streams, has applied it.
	for {
		names, err := r.names(ctx)
		if err != nil || !slices.Contains(names, topology.StateStream) {
			return err
		}
		if natsx.Pause(ctx, pollEvery) != nil {
			return context.Cause(ctx)
		}
	}
}

// made lists the streams of a restore but the marked one. (The API's list of streams with their settings never completes
// for those whose restore broke off, so it reads them one by one.)
func (r *restorer) made(ctx context.Context, id string) (names []string, err error) {
	all, err := r.names(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if !isOurs(name) || name == topology.StateStream {
			continue
		}
		info, err := r.config(ctx, name)
		var api *jetstream.APIError
		switch {
		case err == nil && info.Metadata[topology.MetaRestored] == id:
			names = append(names, name)
		case err == nil:
		case unanswered(err), errors.As(err, &api):
			// It has no leader, or its leader knows no stream yet: its bytes did not all arrive. Under the mark no other program makes
			// streams of this name.
			names = append(names, name)
		default:
			return nil, fmt.Errorf("reading stream %s: %w", name, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return names, nil
}

// names returns all streams of the server.
func (r *restorer) names(ctx context.Context) (names []string, err error) {
	lister := r.js.StreamNames(ctx)
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("listing streams: %w", err)
	}
	return names, nil
}

// config reads a stream's settings, twice if there is no answer.
func (r *restorer) config(ctx context.Context, name string) (jetstream.StreamConfig, error) {
	for try := 1; ; try++ {
		attempt, done := context.WithTimeout(ctx, configWait)
		stream, err := r.js.Stream(attempt, name)
		done()
		switch {
		case err == nil:
			return stream.CachedInfo().Config, nil
		case try == 2 || ctx.Err() != nil || !unanswered(err):
			return jetstream.StreamConfig{}, err
		}
	}
}

// isOurs reports whether a stream has a name that a log's streams have.
func isOurs(name string) bool {
	for _, prefix := range []string{topology.CmdStreamPrefix, topology.EvtStreamPrefix, topology.RmdStreamPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(optional, name) || name == topology.StateStream || name == topology.SnapStream
}

func (r *restorer) remove(ctx context.Context, name string) error {
	if err := r.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("removing stream %s: %w", name, err)
	}
	return nil
}

// JetStream error codes that nats.go has no name for.
const (
	codeNoPeers     jetstream.ErrorCode = 10005
	codeNoResources jetstream.ErrorCode = 10023
	codeNoStorage   jetstream.ErrorCode = 10047
	codeNoCluster   jetstream.ErrorCode = 10074
)

// hint returns what to do about some errors of the server.
func hint(err error) string {
	var api *jetstream.APIError
	switch {
	case unanswered(err):
		return "; check that the NATS server runs and has JetStream"
	case !errors.As(err, &api):
		return ""
	}
	switch api.ErrorCode {
	case codeNoCluster:
		return "; this NATS server is no cluster: give --replicas 1"
	case codeNoPeers:
		return "; the cluster has too few nodes for so many copies: start more, or give a lower --replicas"
	case codeNoResources, codeNoStorage:
		return "; the NATS server has too little storage: free disk space, or raise its max_file_store"
	}
	return ""
}
