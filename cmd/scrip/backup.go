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
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup NAME", Short: "Take an online backup of the log", Args: cli.Args("NAME"),
		Long: `Take a backup of the whole log into a new directory while servers run: all streams, the log's identity, every change
of the settings (scrip config), keys, the audit stream, webhooks and how far they and push senders are, and the snapshots from
which lanes start quickly; with checksums. Leases, jobs and read tables are left out: read tables are made from the log.

A server with the role api takes it, below the directory that serve --backups names, or backups in its data directory. NAME
is that of the new directory. ` + onServer + `

The state of dead letters (retried, discarded, and notes) is not in the backup: it is not part of the log but is stored in
PostgreSQL, in table scrip_meta.dead_letter. Save that table too if you need it. If it is lost, dead letters are open again,
and nothing else changes.

The directory gets its name once it is complete and on disk. Until then its name is NAME.incomplete; the next backup of this
name removes what an interrupted one left there. While the commands of a lane are copied, the lane's owner does not purge them;
if the server dies, the owner purges again after a short time.

The files of streams are encrypted with a key that is derived from the code key. The code key lies beside them, in code.key,
so that a restore needs nothing else: protect the directory as you protect the server. --without-key leaves it out: keep the
key elsewhere then. Without it no program can decrypt the backup, scrip neither; what it shows are its log, the names, sizes
and numbers of messages of its streams, and when it was taken.

Messages that the server cannot read (for example of a newer scrip) are copied like all others, and listed on standard error
and in the manifest.

Exit code 1 and a reason if it failed: the directory exists, no space, no server. Then no files are left.`,
		Example: `  scrip backup scrip-2026-11-27
  scrip backup scrip-2026-11-27 --without-key --nats nats://nats.internal:4222
  scrip restore ./data/backups/scrip-2026-11-27 --data /srv/scrip-new`,
	}
	idFlag(cmd, false)
	request, _ := m.actionFlags(cmd, "backup.start", "name")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		request["name"] = given[0]
		return m.run(cmd, "backup.start", request)
	}
	return cmd
}

// printTaken prints a backup that was taken.
func (m *Main) printTaken(b ops.BackupTaken) error {
	for _, note := range b.Notes {
		fmt.Fprintln(m.Err, "scrip:", cli.Text(note))
	}
	return cli.Fields(m.Out, append([][2]string{{"backup taken", ""}, {"server", b.Server}, {"directory", b.Dir}}, contents(b)...))
}

// contents describes a backup.
func contents(b ops.BackupTaken) [][2]string {
	key := "in it; keep the directory safe"
	if !b.CodeKey {
		key = "not in it; its fingerprint is " + b.KeyFingerprint
	}
	return [][2]string{{"log", fmt.Sprintf("%s, %d lanes", b.Log, b.Lanes)}, {"as of", b.Begun.Format(time.RFC3339)},
		{"messages", fmt.Sprint(b.Messages)}, {"bytes", fmt.Sprint(b.Bytes)}, {"code key", key}}
}

// restored is a backup that was restored, in JSON.
type restored struct {
	ops.BackupTaken
	To      string  `json:"to"`
	Seconds float64 `json:"seconds"`
}

// printRestored prints the contents of a backup that was restored.
func (m *Main) printRestored(dir, target string, b *backup.Manifest, took time.Duration) error {
	r := restored{ops.Backup(b, dir), target, took.Round(time.Millisecond).Seconds()}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, r)
	}
	rows := append([][2]string{{"restored", ""}, {"to", target}, {"from backup", dir}}, contents(r.BackupTaken)...)
	return cli.Fields(m.Out, append(rows, [2]string{"took", took.Round(10 * time.Millisecond).String()}))
}

// interrupted replaces err by a short text where a signal ended the command.
func interrupted(err error, cmd *cobra.Command) error {
	if cmd.Context().Err() != nil {
		return errors.New("stopped; nothing is left of it")
	}
	return err
}

func (m *Main) restoreCommand() *cobra.Command {
	var replicas uint32
	var withoutWebhooks, unsealed bool
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Restore a backup into an empty data directory or NATS server", Args: cli.Args("DIR"),
		Long: `Restore a backup of scrip backup into a data directory without a log (--data), for scrip serve to start on, or to a NATS
server without a log (--nats). Every file is checked first; a backup that is damaged, incomplete or of a newer format is
refused with the file's name, and nothing is changed. So is one whose streams have other settings than scrip makes.

A backup is decrypted with the code key in it. For one that was taken --without-key give the key: SCRIP_CODE_KEY, or
code.key in --data. Otherwise it is refused, and the error has the fingerprint of the key that it needs.

A backup must have the seal of its log: without it, a person who can write where backups are stored could become operator. The
seal is checked with SCRIP_CODE_KEY, --seal-key-file or code.key in --data, else with the key in the backup, which finds
damage, but no change by a reader of that key. A backup without a seal, or with that of another key, is refused unless you
add --unsealed, because you know where it comes from.

With --data the code key becomes code.key there, and scrip serve needs nothing more. With --nats, give each server with
the roles lanes or api the key: SCRIP_CODE_KEY, or a copy of the backup's code.key in its data directory.

--replicas 3 gives every stream three copies: use it to move from one machine to a cluster. The command returns when all
copies are complete. Sequences and timestamps do not change, so read tables, checkpoints and snapshots stay valid.

Webhooks and push senders go on where they were when the backup was taken: what was delivered after that is delivered again,
under the same ids. To try a backup beside the log that it is of, which delivers, too, leave them out: --without-webhooks.

An existing log is never changed. Stop all servers before you replace a log by a backup. Run an interrupted restore again:
it starts from the beginning; until it is complete, no server starts on it.

The output names the new location of the log and the next step. Exit code 1 and a reason if it failed or was refused.`,
		Example: `  scrip restore /backups/scrip-2026-11-27 --data /srv/scrip
  scrip restore /backups/scrip-2026-11-27 --nats nats://n1:4222,nats://n2:4222,nats://n3:4222 --replicas 3`,
	}
	cmd.Flags().Var(cli.Number(&replicas, 0, 1, 5), "replicas", "copies of every stream on a NATS cluster (default: as in the backup)")
	cmd.Flags().BoolVar(&unsealed, "unsealed", false, "restore although no seal shows that the backup is the log's own")
	cmd.Flags().BoolVar(&withoutWebhooks, "without-webhooks", false, "leave out webhooks, and the positions and dead letters of webhooks and push senders")
	idFlag(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		external := m.global.nats != ""
		switch {
		case external && cmd.Flags().Changed("data"):
			return cli.Usagef("restore takes --nats URL or --data DIR, not both (the variables SCRIP_NATS and SCRIP_DATA count)")
		case !external && replicas > 1:
			return cli.Usagef("restore --replicas %d needs a NATS cluster; give --nats URL", replicas)
		}
		started := time.Now()
		of, found, err := m.findKey()
		if err != nil {
			return err
		}
		var key *[32]byte
		if found {
			key = &of.Key
		}
		bar := m.bar("checking", 0, true)
		b, err := backup.Open(cmd.Context(), given[0], key, bar.transferred)
		bar.endOr(err)
		if errors.Is(err, backup.ErrNoKey) {
			return fmt.Errorf("%w; give that key in %s, or put the code.key of a server of the log into %s", err, datadir.KeyVariable, m.global.data)
		}
		if err != nil {
			return interrupted(err, cmd)
		}
		if !unsealed {
			if err := m.checkSeal(cmd.Context(), b, key); err != nil {
				return interrupted(err, cmd)
			}
		}
		bar = m.bar("restoring", 0, true)
		opts := backup.RestoreOptions{Replicas: int(replicas), WithoutWebhooks: withoutWebhooks, Progress: bar.transferred, Logger: m.warnings()}
		note, target := "", ""
		if external {
			note, target, err = m.restoreExternal(cmd.Context(), b, opts)
		} else {
			note, target, err = m.restoreEmbedded(cmd.Context(), b, opts)
		}
		bar.endOr(err)
		if err != nil {
			return interrupted(err, cmd)
		}
		if b.Webhooks() && !withoutWebhooks {
			fmt.Fprintln(m.Err, "scrip: webhooks are in it, and servers of role api deliver to them; if the log that the backup is of still runs, restore again with --without-webhooks")
		}
		fmt.Fprintln(m.Err, note)
		return m.printRestored(given[0], target, &b.Manifest, time.Since(started))
	}
	return cmd
}

// checkSeal checks the backup's seal with the seal key or the code key that is given or in the data directory, else with the key in
// the backup. A key of another log counts: its owner expects another backup.
func (m *Main) checkSeal(ctx context.Context, b *backup.Backup, key *[32]byte) error {
	log := topology.Log{UUID: b.Log}
	sealKey, err := datadir.SealKey(m.Env, m.global.sealKey)
	switch {
	case err != nil:
	case sealKey != "":
		log, err = log.WithSealKey(sealKey)
	case key != nil:
		log = log.WithKey(*key)
	}
	if err == nil {
		err = b.CheckSeal(ctx, log.Seal)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; give the key of that log in %s or with --seal-key-file or, if you know that the backup is yours, --unsealed", err, datadir.KeyVariable)
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
	target = natsx.WithoutUser(s.nc.ConnectedUrl())
	js, err := s.jetStream(ctx)
	if err != nil {
		return "", "", err
	}
	if err := b.Restore(ctx, js, opts); err != nil {
		return "", "", err
	}
	where := "the backup's code.key"
	if !b.Key {
		where = "the code key with fingerprint " + b.KeyFingerprint + ", which is not in the backup"
	}
	return "next: scrip serve --nats URL, with " + where + " in its data directory or in " + datadir.KeyVariable, target, nil
}

// restoreEmbedded restores into a data directory: an embedded NATS server writes to a sibling of the final directory,
// without an fsync per message; the whole is synced before it is renamed to the final directory.
func (m *Main) restoreEmbedded(ctx context.Context, b *backup.Backup, opts backup.RestoreOptions) (note, target string, err error) {
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
	if err := dir.PutKey(b.CodeKey()); err != nil {
		return "", "", err
	}
	opts.Replicas, opts.Disk = 1, room.At(dir.Path())
	if err := m.restoreInto(ctx, dir.Restoring(), b, opts); err != nil {
		return "", "", err
	}
	return note, dir.Path(), dir.FinishRestore()
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
