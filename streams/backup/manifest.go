package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Format is the version of the directory's layout that this program writes and restores.
const Format = 1

// optional are the streams that servers make when they need them, in the order in which they are taken and restored. One
// that is missing or empty is not copied: servers make it again.
//
// Positions are copied first, then what waits, then the dead letters. A message before its position was delivered, waits, or is
// a dead letter. One that is tried while the copies are made is in a later copy, or was delivered. The webhooks are copied last,
// so each position in the copy is of a webhook that is in it.
var optional = []string{
	topology.SettingsStream, topology.AccessStream, topology.AuditStream, topology.OptOutStream,
	topology.PushStream, topology.PushWaitStream, topology.PushDeadStream, topology.PushOutStream, topology.WebhooksStream,
}

// deliveries are the streams that a restore may leave out: with them a server goes on delivering.
var deliveries = []string{topology.PushStream, topology.PushWaitStream, topology.PushDeadStream, topology.WebhooksStream}

// changing are streams in which messages are replaced or removed: a copy may lack what was while it was made.
var changing = []string{topology.StateStream, topology.SnapStream, topology.OptOutStream, topology.PushStream, topology.PushWaitStream, topology.PushDeadStream}

const (
	manifestFile = "manifest.json"
	sumsFile     = "SHA256SUMS"
	keyFile      = "code.key"
	// The files of streams are encrypted.
	dataSuffix = ".snapshot.age"
	infoSuffix = ".json.age"
)

// Manifest describes the content of a backup.
type Manifest struct {
	// Format is the version of this layout.
	Format int `json:"format"`
	// Log, Lanes, KeyFingerprint, LogFormat and LogCreated are the log's identity.
	Log            string    `json:"log"`
	Lanes          int       `json:"lanes"`
	KeyFingerprint string    `json:"key_fingerprint"`
	LogFormat      int       `json:"log_format"`
	LogCreated     time.Time `json:"log_created"`
	// Started and Ended are by the clock of the machine that took it.
	Started time.Time `json:"begun"`
	Ended   time.Time `json:"ended"`
	// Scrip and NATS are the versions of the program that took it and of the server it was taken from. A NATS server of
	// an earlier minor version may not read what a later one wrote.
	Scrip string `json:"scrip"`
	NATS  string `json:"nats"`
	// Key is true if the code key is in it. The files of streams are encrypted in either case.
	Key bool `json:"code_key"`
	// Streams in the order in which they were started, which is that of the restore.
	Streams []Stream `json:"streams"`
	// Unread are messages at the ends of streams that the program could not read, for example of a newer version. They are in
	// the copy like all others.
	Unread []eventlog.Unread `json:"unread,omitempty"`
}

// Stream is one stream of a backup: <name>.snapshot.age and <name>.json.age.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"` // as the server stores it
	First    uint64 `json:"first_sequence"`
	Last     uint64 `json:"last_sequence"`
	// Size of the encrypted snapshot file in bytes.
	Size int64 `json:"size"`
}

func (s Stream) data() string { return s.Name + dataSuffix }
func (s Stream) info() string { return s.Name + infoSuffix }

// Messages and Size are the sums over all streams.
func (m *Manifest) Messages() (n uint64) {
	for _, s := range m.Streams {
		n += s.Messages
	}
	return n
}

// Size is described at Messages.
func (m *Manifest) Size() (n int64) {
	for _, s := range m.Streams {
		n += s.Size
	}
	return n
}

// files returns all files of the backup but SHA256SUMS and its seal.
func (m *Manifest) files() []string {
	names := []string{manifestFile}
	if m.Key {
		names = append(names, keyFile)
	}
	for _, s := range m.Streams {
		names = append(names, s.info(), s.data())
	}
	return names
}

// check returns an error if a manifest lacks what its writer must have put in.
func (m *Manifest) check() error {
	switch {
	case m.Format > Format || m.LogFormat > topology.Format:
		return fmt.Errorf("the backup has format %d with log format %d, this program restores formats %d and %d; use the newer scrip that took it", m.Format, m.LogFormat, Format, topology.Format)
	case m.Format < Format || m.Log == "" || m.Lanes < 1 || m.Lanes > topology.MaxLanes:
		return fmt.Errorf("%s does not name its log; use another backup", manifestFile)
	}
	want := streamNames(m.Lanes, m.has)
	if len(m.Streams) != len(want) {
		return fmt.Errorf("%s lists %d streams, a log of %d lanes has %d; use another backup", manifestFile, len(m.Streams), m.Lanes, len(want))
	}
	for i, s := range m.Streams {
		if s.Name != want[i] {
			return fmt.Errorf("%s lists stream %q where %s is expected; use another backup", manifestFile, s.Name, want[i])
		}
	}
	return nil
}

// Webhooks reports whether webhooks are in it.
func (m *Manifest) Webhooks() bool { return m.has(topology.WebhooksStream) }

// has reports whether a stream is in it.
func (m *Manifest) has(stream string) bool {
	return slices.ContainsFunc(m.Streams, func(s Stream) bool { return s.Name == stream })
}

// streamNames returns the streams of a log in the order in which they are taken and restored, with the optional ones that
// it has.
func streamNames(lanes int, has func(stream string) bool) []string {
	names := []string{topology.StateStream, topology.SnapStream}
	for _, name := range optional {
		if has(name) {
			names = append(names, name)
		}
	}
	for n := range lanes {
		names = append(names, laneStreams(n)...)
	}
	return names
}

// laneStreams returns effects before causes: a copy taken in this order never holds a reminder without its event, nor an
// event without its command.
func laneStreams(lane int) []string {
	return []string{topology.RmdStream(lane), topology.EvtStream(lane), topology.CmdStream(lane)}
}

// encode returns the content of the file manifest.json.
func (m *Manifest) encode() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}
