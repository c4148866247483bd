package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) restoreCommand() *cobra.Command {
	var replicas uint32
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Put a backup into an empty data directory or NATS server", Args: args("DIR"),
		Long: `Put a backup that scrip backup made into a data directory without a log (--data), for scrip serve to start on, or on a NATS
server without a log (--nats). Every file is checked first; what is damaged, incomplete or of a newer format is refused
with the file's name, and nothing is done.

With --data the code key becomes code.key there, and scrip serve needs nothing more. With --nats, give each server with
the roles lanes or api the key: SCRIP_CODE_KEY, or a copy of the backup's code.key in its data directory.

--replicas 3 gives every stream three copies: the road from one machine to a cluster. It returns when all copies have
everything. Sequences and timestamps stay as they were, so read tables, checkpoints and snapshots go on to be valid.

A log that is there is never touched. Stop all servers before you restore one in its place. A restore that was interrupted
is started over by running it again; until then no server starts on it.

It says where the log is now, and what to do next. Exit code 1 and a reason where it failed or was refused.`,
		Example: `  scrip restore /backups/scrip-2026-11-27 --data /srv/scrip
  scrip restore /backups/scrip-2026-11-27 --nats nats://n1:4222,nats://n2:4222,nats://n3:4222 --replicas 3`,
	}
	cmd.Flags().Var(number(&replicas, 0, 1, 5), "replicas", "copies of every stream on a NATS cluster (default: as in the backup)")
	unusedIDFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		external := m.global.nats != ""
		switch {
		case external && cmd.Flags().Changed("data"):
			return usagef("restore takes --nats URL or --data DIR, not both (the variables SCRIP_NATS and SCRIP_DATA count)")
		case !external && replicas > 1:
			return usagef("restore --replicas %d needs a NATS cluster; give --nats URL", replicas)
		}
		begun := time.Now()
		checking := m.transfer("checking")
		b, err := backup.Open(cmd.Context(), given[0], checking.to)
		checking.end(err)
		if err != nil {
			return interrupted(err, cmd)
		}
		if err := m.checkSeal(b); err != nil {
			return err
		}
		progress := m.transfer("restoring")
		opts := backup.RestoreOptions{Replicas: int(replicas), Progress: progress.to, Logger: m.logger(outputText, "warn")}
		note, place := "", ""
		if external {
			note, place, err = m.restoreExternal(cmd.Context(), b, opts)
		} else {
			note, place, err = m.restoreEmbedded(cmd.Context(), b, opts)
		}
		progress.end(err)
		if err != nil {
			return interrupted(err, cmd)
		}
		fmt.Fprintln(m.Err, note)
		return m.printBackup("restored", given[0], place, &b.Manifest, time.Since(begun))
	}
	return cmd
}

// checkSeal checks who took the backup, where the key to that is given or in the data directory.
func (m *Main) checkSeal(b *backup.Backup) error {
	log, err := m.unlock(topology.Log{UUID: b.Log, KeyFingerprint: b.KeyFingerprint})
	if err != nil || log.Seal == nil {
		return err
	}
	sealed, err := b.CheckSeal(log.Seal)
	if err == nil && !sealed {
		fmt.Fprintln(m.Err, "the backup has no seal: it was taken without the key or by an older scrip, or somebody took the seal away")
	}
	return err
}

// restoreExternal restores to a NATS server that runs, and says what is to be done next, and where the log now is.
func (m *Main) restoreExternal(ctx context.Context, b *backup.Backup, opts backup.RestoreOptions) (note, place string, err error) {
	s, err := m.connect()
	if err != nil {
		return "", "", err
	}
	defer s.close()
	place = s.nc.ConnectedUrlRedacted()
	js, err := jetstream.New(s.nc)
	if err != nil {
		return "", "", err
	}
	if err := b.Restore(ctx, js, opts); err != nil {
		return "", "", err
	}
	where := "the backup's code.key"
	if b.CodeKey() == nil {
		where = "the code key with fingerprint " + b.KeyFingerprint + ", which is not in the backup"
	}
	return "next: scrip serve --nats URL, with " + where + " in its data directory or in " + datadir.KeyVariable, place, nil
}

// restoreEmbedded restores into a data directory: a NATS server of our own works on a directory beside the final one,
// without an fsync per message, and the whole is put on disk before it gets its name.
func (m *Main) restoreEmbedded(ctx context.Context, b *backup.Backup, opts backup.RestoreOptions) (note, place string, err error) {
	key, err := m.restoredKey(b)
	if err != nil {
		return "", "", err
	}
	dir, err := datadir.Open(m.global.data)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := dir.BeginRestore(); err != nil {
		return "", "", err
	}
	// A crash from here on leaves a directory on which no server starts, and which the next restore removes.
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.AbortRestore())
		}
	}()
	note = "next: scrip serve --data " + m.global.data
	if key != nil {
		if err := dir.PutKey(*key); err != nil {
			return "", "", err
		}
	} else {
		note = fmt.Sprintf("next: bring the code key with fingerprint %s, which is not in the backup: code.key in %s, or %s; then scrip serve --data %s",
			b.KeyFingerprint, dir.Path(), datadir.KeyVariable, m.global.data)
	}
	opts.Replicas = 1
	if err := m.fill(ctx, dir.Restoring(), b, opts); err != nil {
		return "", "", err
	}
	return note, dir.Path(), dir.FinishRestore()
}

// restoredKey is the key to put into the data directory: the backup's, or the variable's, nil if there is neither.
func (m *Main) restoredKey(b *backup.Backup) (*[32]byte, error) {
	if b.CodeKey() != nil {
		return b.CodeKey(), nil
	}
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return nil, &usageError{err}
	}
	if given == "" {
		return nil, nil
	}
	key, err := code.ParseKey(given)
	if err == nil && code.Fingerprint(key) != b.KeyFingerprint {
		err = fmt.Errorf("its fingerprint is %s, but the log was created with %s", code.Fingerprint(key), b.KeyFingerprint)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", datadir.KeyVariable, err)
	}
	return &key, nil
}

// fill restores to a server that nobody else knows of.
func (m *Main) fill(ctx context.Context, store string, b *backup.Backup, opts backup.RestoreOptions) error {
	ns, err := natsd.Start(natsd.Options{
		StoreDir: store, Listen: "127.0.0.1:0", Sync: natsd.SyncInterval, Lanes: b.Lanes,
		Username: "restore", Password: rand.Text(), Logger: opts.Logger,
	})
	if err != nil {
		return err
	}
	defer ns.Shutdown()
	nc, err := ns.Connect()
	if err != nil {
		return fmt.Errorf("connecting to the NATS server that restores: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := b.Restore(ctx, js, opts); err != nil {
		return err
	}
	return ns.SetMapping(b.Lanes)
}
