package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/backup"
)

func (m *Main) backupCommand() *cobra.Command {
	var withoutKey bool
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Take an online backup of the log", Args: cli.Args("DIR"),
		Long: `Take a backup of the whole log into a new directory while servers run: all streams, the log's identity, every change
of the settings (scrip config) and the snapshots from which lanes start quickly; with checksums. Leases and read tables are
left out: read tables are made from the log.

The state of dead letters (retried, discarded, and notes) is not in the backup: it is not part of the log but is stored in
PostgreSQL, in table scrip_meta.dead_letter. Save that table too if you need it. If it is lost, dead letters are open again,
and nothing else changes.

The directory gets its name once it is complete and on disk. Until then its name is DIR.incomplete; the next backup removes
what an interrupted one left there. While the commands of a lane are copied, the lane's owner does not purge them; if this
program dies, the owner purges again after a short time.

The backup contains the code key, from code.key in --data or the variable SCRIP_CODE_KEY, since no code can be read without
it: protect the directory as you protect the server. --without-key leaves the key out; keep it elsewhere then.

Messages that this program cannot read (for example of a newer scrip) are copied like all others, and listed on standard
error and in the manifest.

Exit code 1 and a reason if it failed: the directory exists, no space, no server, no key. Then no files are left.`,
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
				return &cli.UsageError{Err: err}
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
			fmt.Fprintf(m.Err, "scrip: copied, and cannot be read by this program: message %d of %s: %s\n", u.Sequence, u.Stream, cli.Text(u.Why))
		}
		return m.printBackup("backup taken", given[0], "", made, time.Since(begun))
	}
	return cmd
}

// interrupted replaces err by a short text where a signal ended the command.
func interrupted(err error, cmd *cobra.Command) error {
	if cmd.Context().Err() != nil {
		return errors.New("stopped; nothing is left of it")
	}
	return err
}

// printBackup prints the contents of a backup that was taken, or restored to target.
func (m *Main) printBackup(head, dir, target string, b *backup.Manifest, took time.Duration) error {
	if m.global.output == outputJSON {
		fields := map[string]any{
			"dir": dir, "log": b.Log, "lanes": b.Lanes, "begun": b.Begun, "ended": b.Ended, "streams": len(b.Streams), "messages": b.Messages(),
			"bytes": b.Size(), "code_key": b.Key, "key_fingerprint": b.KeyFingerprint, "unread": len(b.Unread), "seconds": took.Round(time.Millisecond).Seconds(),
		}
		if target != "" {
			fields["to"] = target
		}
		return cli.JSON(m.Out, fields)
	}
	key := "in it; keep the directory safe"
	if !b.Key {
		key = "not in it; its fingerprint is " + b.KeyFingerprint
	}
	rows := [][2]string{{head, ""}, {"directory", dir}}
	if target != "" {
		rows = [][2]string{{head, ""}, {"to", target}, {"from backup", dir}}
	}
	return cli.Fields(m.Out, append(rows, [][2]string{
		{"log", fmt.Sprintf("%s, %d lanes", b.Log, b.Lanes)}, {"as of", b.Begun.Format(time.RFC3339)},
		{"messages", fmt.Sprint(b.Messages())}, {"bytes", fmt.Sprint(b.Size())}, {"code key", key}, {"took", took.Round(10 * time.Millisecond).String()},
	}...))
}

// transfer shows progress on a terminal: bytes done, bytes in total, time left.
type transfer struct {
	m    *Main
	what string
	mu   sync.Mutex // several streams are copied at once
	bar  *bar
}

func (m *Main) transfer(what string) *transfer { return &transfer{m: m, what: what} }

// to updates the bar. Neither number is exact to the byte, so only end fills the bar.
func (t *transfer) to(done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	total = max(total, done+1)
	if t.bar == nil {
		t.bar = t.m.progress(t.what, total)
	}
	t.bar.set("", done, total)
}

// end fills the bar, or removes it after an error.
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
