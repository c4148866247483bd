package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
	"github.com/seed-4a2410e3/scrip/streams/backup"
)

func (m *Main) backupCommand() *cobra.Command {
	var withoutKey bool
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Copy the whole log into a new directory, while it is worked on", Args: args("DIR"),
		Long: `Copy the whole log into a new directory, while servers go on: all streams, the log's identity, every change of the
settings (scrip config) and the snapshots from which lanes start quickly; with checksums. Leases are left out, and so are
the read tables: they are made from the log.

What people did about dead letters (retried, discarded, and their notes) is not in it: it is no part of the log but lies
beside the read tables, in table scrip_meta.dead_letter of PostgreSQL. Save that table, too, if you need it; where it is
lost, dead letters are open again, and nothing else is.

The directory has its name only when it is whole and on disk. Until then it is called DIR.incomplete; what an interrupted
backup left of that the next one removes. While the commands of a lane are copied, its owner keeps decided ones a little
longer; that ends by itself if this program dies.

The code key is part of it, from code.key in --data or the variable SCRIP_CODE_KEY, since without it no code can be read:
keep the directory as safe as the server itself. --without-key leaves it out; keep it elsewhere then.

Messages that this program cannot read (of a newer scrip, say) are copied like all others, and named on standard error and in
the manifest: a backup is of bytes.

Exit code 1 and a reason where it failed: the directory exists, no room, no server, no key. Nothing is left then.`,
		Example: `  scrip backup /backups/scrip-2026-11-27
  scrip backup /backups/scrip-2026-11-27 --without-key --nats nats://nats.internal:4222
  scrip restore /backups/scrip-2026-11-27 --data /srv/scrip-new`,
	}
	cmd.Flags().BoolVar(&withoutKey, "without-key", false, "leave the code key out")
	unusedIDFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		opts := backup.CreateOptions{Version: versionText(), Logger: m.logger(outputText, "warn"), Unlock: m.unlock}
		if !withoutKey {
			fromEnv, err := datadir.Variable(m.Env, datadir.KeyVariable)
			if err != nil {
				return &usageError{err}
			}
			key, found, err := datadir.FindKey(m.global.data, fromEnv)
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("there is no code key: no %s in %s, and %s is not set; set it, name the server's --data DIR, or leave the key out with --without-key", "code.key", m.global.data, datadir.KeyVariable)
			}
			opts.Key = &key.Key
		}
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		js, err := jetstream.New(s.nc)
		if err != nil {
			return err
		}
		progress := m.transfer("copying")
		opts.Progress = progress.to
		begun := time.Now()
		made, err := backup.Create(cmd.Context(), js, given[0], opts)
		progress.end(err)
		if err != nil {
			return interrupted(err, cmd)
		}
		for _, u := range made.Unread {
			fmt.Fprintf(m.Err, "scrip: copied, and cannot be read by this program: message %d of %s: %s\n", u.Sequence, u.Stream, terminal.Text(u.Why))
		}
		return m.printBackup("backup taken", given[0], "", made, time.Since(begun))
	}
	return cmd
}

// interrupted says in words that a person stopped it.
func interrupted(err error, cmd *cobra.Command) error {
	if cmd.Context().Err() != nil {
		return errors.New("stopped; nothing is left of it")
	}
	return err
}

// printBackup says what is in a backup that was taken, or restored to a place.
func (m *Main) printBackup(head, dir, place string, b *backup.Manifest, took time.Duration) error {
	if m.global.output == outputJSON {
		fields := map[string]any{
			"dir": dir, "log": b.Log, "lanes": b.Lanes, "begun": b.Begun, "ended": b.Ended, "streams": len(b.Streams), "messages": b.Messages(),
			"bytes": b.Size(), "code_key": b.Key, "key_fingerprint": b.KeyFingerprint, "unread": len(b.Unread), "seconds": took.Round(time.Millisecond).Seconds(),
		}
		if place != "" {
			fields["to"] = place
		}
		return m.printJSON(fields)
	}
	key := "in it; keep the directory safe"
	if !b.Key {
		key = "not in it; its fingerprint is " + b.KeyFingerprint
	}
	rows := [][2]string{{head, ""}, {"directory", dir}}
	if place != "" {
		rows = [][2]string{{head, ""}, {"to", place}, {"from backup", dir}}
	}
	return m.printFields(append(rows, [][2]string{
		{"log", fmt.Sprintf("%s, %d lanes", b.Log, b.Lanes)}, {"as of", b.Begun.Format(time.RFC3339)},
		{"messages", fmt.Sprint(b.Messages())}, {"bytes", fmt.Sprint(b.Size())}, {"code key", key}, {"took", took.Round(10 * time.Millisecond).String()},
	}...))
}

// transfer shows a person how many bytes of how many have been moved, and how long the rest will take.
type transfer struct {
	m    *Main
	what string
	mu   sync.Mutex // several streams are copied at once
	bar  *bar
}

func (m *Main) transfer(what string) *transfer { return &transfer{m: m, what: what} }

// to says how far it is. Neither number is exact to the byte, so the bar is full only when end says so.
func (t *transfer) to(done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	total = max(total, done+1)
	if t.bar == nil {
		t.bar = t.m.progress(t.what, total)
	}
	t.bar.set("", done, total)
}

// end finishes the bar, as full or as what it was.
func (t *transfer) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.bar == nil:
	case err != nil:
		t.bar.clear()
	default:
		t.bar.end()
	}
}
