package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// recordKey is the key in topology.StateBucket with the last good backup. All servers read it, and it is as durable as the log.
const recordKey = "backup"

// recordWait bounds the attempts to store a record.
const recordWait = 30 * time.Second

// Record is the last good backup of a log. A restored log has one of the backup that it was made from: the one that it holds in
// its copy of the bucket is of an earlier backup.
type Record struct {
	// Begun is when it was begun: what was answered later may not be in it.
	Begun time.Time `json:"begun"`
	// Dir is its directory, at the server that took it or at the machine that restored the log from it.
	Dir     string `json:"dir"`
	Server  string `json:"server"`
	Bytes   int64  `json:"bytes"`
	CodeKey bool   `json:"code_key"`
	// Restored is true if the log was restored from it, and no backup was taken since.
	Restored bool `json:"restored,omitempty"`
}

// recordOf describes a backup in a directory.
func recordOf(m *Manifest, dir, server string) Record {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	return Record{Begun: m.Started, Dir: dir, Server: server, Bytes: m.Size(), CodeKey: m.Key}
}

// Last returns the last good backup of the log that js leads to; ok is false where there was none.
func Last(ctx context.Context, js jetstream.JetStream) (r Record, ok bool, err error) {
	msg, ok, err := natsx.LastMessage(ctx, js, topology.StateStream, "$KV."+topology.StateBucket+"."+recordKey)
	if err == nil && ok {
		err = json.Unmarshal(msg.Data, &r)
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("reading the record of the last backup: %w", err)
	}
	return r, ok, nil
}

func (r Record) store(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = natsx.Retry(ctx, func(ctx context.Context) error {
		kv, err := js.KeyValue(ctx, topology.StateBucket)
		if err == nil {
			_, err = kv.Put(ctx, recordKey, value)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the backup: %w", err)
	}
	return nil
}
