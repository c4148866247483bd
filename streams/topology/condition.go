package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// confirmLag is after how long a copy that is not current is looked at again: under load each copy is behind for a moment.
const confirmLag = time.Second

// Condition is what the leaders of a log's streams report.
type Condition struct {
	// Endangered are the streams that may lose or refuse messages by their settings, or have lost some, each with its reasons.
	Endangered map[string][]string
	// Differ are the streams with other settings than this program gives them, each with what differs.
	Differ map[string][]string
	// Lag is by node of NATS how many messages its copies lack; a copy that is offline or not current counts at least 1. nil = NATS is
	// no cluster.
	Lag map[string]uint64
	// Copies is how many each event stream has, at least.
	Copies int
	// Full is by stream with a bound what part of it is used, 0 to 1.
	Full map[string]float64

	last map[string]uint64 // the newest sequence of each stream that keeps all its messages, or of an earlier look
}

// After compares with the look before this one. A stream that ends earlier than it did was removed and made again; it stays
// endangered as long as the looks follow each other.
func (c *Condition) After(before Condition) {
	for name, had := range before.last {
		if has, read := c.last[name]; read && has < had {
			c.Endangered[name] = append(c.Endangered[name], fmt.Sprintf("stream %s had %d messages and ends at %d: restore it from a backup", name, had, has))
		}
		c.last[name] = max(had, c.last[name])
	}
}

// Condition reads the settings and the state of all streams of the log, and how far their copies are. It changes nothing.
func (l Log) Condition(ctx context.Context, js jetstream.JetStream) (Condition, error) {
	infos, err := readInfos(ctx, js, Streams(l.Lanes))
	if err != nil {
		return Condition{}, err
	}
	c := Condition{Endangered: map[string][]string{}, Differ: map[string][]string{}, Full: map[string]float64{}, last: map[string]uint64{}}
	for name, info := range infos {
		danger, differs := l.judge(name, info)
		if len(danger) > 0 {
			c.Endangered[name] = danger
		}
		if len(differs) > 0 {
			c.Differ[name] = differs
		}
		if info != nil && info.Config.DenyPurge {
			c.last[name] = info.State.LastSeq
		}
		if info != nil && (info.Config.MaxBytes > 0 || info.Config.MaxMsgs > 0) {
			c.Full[name] = max(part(info.State.Bytes, info.Config.MaxBytes), part(info.State.Msgs, info.Config.MaxMsgs))
		}
		if info != nil && strings.HasPrefix(name, EvtStreamPrefix) && (c.Copies == 0 || info.Config.Replicas < c.Copies) {
			c.Copies = info.Config.Replicas
		}
	}
	c.Lag, err = lag(ctx, js, infos)
	return c, err
}

// part is what part of a bound is used.
func part(used uint64, bound int64) float64 {
	if bound <= 0 {
		return 0
	}
	return float64(used) / float64(bound)
}

// Dangers are the reasons of the endangered streams, sorted.
func (c *Condition) Dangers() []string { return flat(c.Endangered) }

// Differences are the other differences, sorted.
func (c *Condition) Differences() []string { return flat(c.Differ) }

func flat(by map[string][]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[name]...)
	}
	return all
}

// Behind are the nodes whose copies lack messages, sorted.
func (c *Condition) Behind() (nodes []string) {
	for _, node := range slices.Sorted(maps.Keys(c.Lag)) {
		if c.Lag[node] > 0 {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// readInfos reads streams from their leaders. One that does not exist is nil.
func readInfos(ctx context.Context, js jetstream.JetStream, names []string) (map[string]*natsx.StreamInfo, error) {
	var mu sync.Mutex
	infos := map[string]*natsx.StreamInfo{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ensureParallel)
	for _, name := range names {
		group.Go(func() error {
			info, err := natsx.Info(ctx, js, name, "")
			found := &info
			if natsx.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
				found, err = nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			infos[name] = found
			return err
		})
	}
	return infos, group.Wait()
}

// judge compares a stream with what this program makes. Streams that hold nothing of the log for long are not endangered.
func (l Log) judge(name string, info *natsx.StreamInfo) (danger, differs []string) {
	if info == nil {
		if isLaneStream(name) || name == StateStream {
			danger = []string{"stream " + name + " does not exist: restore it from a backup"}
		}
		return danger, nil // servers make others when they need them
	}
	made, all := l.compare(name, info.Config)
	for _, d := range all {
		if endangering[d.setting] && !slices.Contains([]string{LeaseStream, JobsStream, OnceStream, SnapStream}, name) {
			danger = append(danger, d.text)
		} else {
			differs = append(differs, d.text)
		}
	}
	switch st := info.State; {
	case !made.DenyPurge: // messages of others are removed
	case st.Msgs == 0 && st.LastSeq > 0:
		danger = append(danger, fmt.Sprintf("stream %s: all its %d messages are gone: restore it from a backup", name, st.LastSeq))
	case st.Msgs > 0 && st.FirstSeq > 1:
		danger = append(danger, fmt.Sprintf("stream %s begins at message %d, those before are gone: restore it from a backup", name, st.FirstSeq))
	}
	return danger, differs
}

// lag is Condition.Lag. A copy that is not current counts if it still lacks, a moment later, what its leader had.
func lag(ctx context.Context, js jetstream.JetStream, infos map[string]*natsx.StreamInfo) (map[string]uint64, error) {
	var late []string
	var nodes map[string]uint64
	for name, info := range infos {
		if info == nil || info.Cluster == nil || info.Cluster.Name == "" { // a server alone names itself as leader
			continue
		}
		if nodes == nil {
			nodes = map[string]uint64{}
		}
		nodes[info.Cluster.Leader] += 0
		for _, r := range info.Cluster.Replicas {
			nodes[r.Name] += 0
			if !r.Current || r.Offline {
				late = append(late, name)
			}
		}
	}
	if len(late) == 0 {
		return nodes, nil
	}
	if err := natsx.Pause(ctx, confirmLag); err != nil {
		return nil, err
	}
	slices.Sort(late)
	again, err := readInfos(ctx, js, slices.Compact(late))
	for name, info := range again {
		if info == nil || info.Cluster == nil {
			continue
		}
		for _, r := range info.Cluster.Replicas {
			if lacks := lacking(r, info.State.LastSeq-min(info.State.LastSeq, infos[name].State.LastSeq)); lacks > 0 {
				nodes[r.Name] += lacks
			}
		}
	}
	return nodes, err
}

// lacking is what a copy lacks whose stream got so many messages meanwhile.
func lacking(r *jetstream.PeerInfo, meanwhile uint64) uint64 {
	if !r.Offline && (r.Current || r.Lag <= meanwhile && r.Lag > 0) {
		return 0
	}
	return max(1, r.Lag)
}
