package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) restoreCommand() *cobra.Command {
	var replicas uint32
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Restore a backup into an empty data directory or NATS server", Args: cli.Args("DIR"),
		Long: `Restore a backup of scrip backup into a data directory without a log (--data), for scrip serve to start on, or to a NATS
server without a log (--nats). Every file is checked first; a backup that is damaged, incomplete or of a newer format is
refused with the file's name, and nothing is changed.

With --data the code key becomes code.key there, and scrip serve needs nothing more. With --nats, give each server with
the roles lanes or api the key: SCRIP_CODE_KEY, or a copy of the backup's code.key in its data directory.

--replicas 3 gives every stream three copies: use it to move from one machine to a cluster. The command returns when all
copies are complete. Sequences and timestamps do not change, so read tables, checkpoints and snapshots stay valid.

An existing log is never changed. Stop all servers before you replace a log by a backup. Run an interrupted restore again:
it starts from the beginning; until it is complete, no server starts on it.

The output names the new location of the log and the next step. Exit code 1 and a reason if it failed or was refused.`,
		Example: `  scrip restore /backups/scrip-2026-11-27 --data /srv/scrip
  scrip restore /backups/scrip-2026-11-27 --nats nats://n1:4222,nats://n2:4222,nats://n3:4222 --replicas 3`,
	}
	cmd.Flags().Var(cli.Number(&replicas, 0, 1, 5), "replicas", "copies of every stream on a NATS cluster (default: as in the backup)")
	unusedIDFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		external := m.global.nats != ""
		switch {
		case external && cmd.Flags().Changed("data"):
			return cli.Usagef("restore takes --nats URL or --data DIR, not both (the variables SCRIP_NATS and SCRIP_DATA count)")
		case !external && replicas > 1:
			return cli.Usagef("restore --replicas %d needs a NATS cluster; give --nats URL", replicas)
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
		note, target := "", ""
		if external {
			note, target, err = m.restoreExternal(cmd.Context(), b, opts)
		} else {
			note, target, err = m.restoreEmbedded(cmd.Context(), b, opts)
		}
		progress.end(err)
		if err != nil {
			return interrupted(err, cmd)
		}
		fmt.Fprintln(m.Err, note)
		return m.printBackup("restored", given[0], target, &b.Manifest, time.Since(begun))
	}
	return cmd
}

// checkSeal checks the backup's seal if the key is given or in the data directory.
func (m *Main) checkSeal(b *backup.Backup) error {
	log, err := m.unlock(topology.Log{UUID: b.Log, KeyFingerprint: b.KeyFingerprint})
	if err != nil || log.Seal == nil {
		return err
	}
	sealed, err := b.CheckSeal(log.Seal)
	if err == nil && !sealed {
		fmt.Fprintln(m.Err, "the backup has no seal: it was taken without the key or by an older scrip, or the seal was removed")
	}
	return err
}

// restoreExternal restores to a running NATS server. It returns the next step and the new location of the log.
func (m *Main) restoreExternal(ctx context.Context, b *backup.Backup, opts backup.RestoreOptions) (note, target string, err error) {
	s, err := m.connect()
	if err != nil {
		return "", "", err
	}
	defer s.close()
	target = s.nc.ConnectedUrlRedacted()
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
	return "next: scrip serve --nats URL, with " + where + " in its data directory or in " + datadir.KeyVariable, target, nil
}

// restoreEmbedded restores into a data directory: an embedded NATS server writes to a sibling of the final directory,
// without an fsync per message; the whole is synced before it is renamed to the final directory.
func (m *Main) restoreEmbedded(ctx context.Context, b *backup.Backup, opts backup.RestoreOptions) (note, target string, err error) {
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
	// A crash after this leaves a directory on which no server starts, and which the next restore removes.
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
	if err := m.restoreInto(ctx, dir.Restoring(), b, opts); err != nil {
		return "", "", err
	}
	return note, dir.Path(), dir.FinishRestore()
}

// restoredKey is the key to store in the data directory: the backup's, else the variable's, nil if there is neither.
func (m *Main) restoredKey(b *backup.Backup) (*[32]byte, error) {
	if b.CodeKey() != nil {
		return b.CodeKey(), nil
	}
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
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

// restoreInto restores to a private NATS server on a free loopback port with a random password.
func (m *Main) restoreInto(ctx context.Context, store string, b *backup.Backup, opts backup.RestoreOptions) error {
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
