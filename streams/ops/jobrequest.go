package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/backup"
)

// RebuildTables is the request of rebuild.start. Without Schema the new tables are exchanged with those in use.
type RebuildTables struct {
	Schema string    `json:"schema,omitempty" doc:"Copy into a schema of this name, and leave the tables in use as they are."`
	Until  time.Time `json:"until,omitzero" doc:"Copy the tables as of this time; needs schema."`
}

// StartRebuild starts a rebuild of the read tables, or a copy of them.
func (o *Ops) StartRebuild(ctx context.Context, who Caller, q RebuildTables) (Job, error) {
	if q.Schema == "" && !q.Until.IsZero() {
		return Job{}, invalid("until", "needs schema, the name of a schema for the copy")
	}
	return o.Jobs.Start(ctx, who, "rebuild.start", q)
}

// RebuildUndone is the result of rebuild.undo.
type RebuildUndone struct {
	Undone bool `json:"undone"`
}

// UndoRebuild starts to exchange the tables before the last rebuild back.
func (o *Ops) UndoRebuild(ctx context.Context, who Caller, q None) (Job, error) {
	return o.Jobs.Start(ctx, who, "rebuild.undo", q)
}

// PreviousDropped is the result of rebuild.drop.
type PreviousDropped struct {
	Dropped bool `json:"dropped" doc:"false: there were no previous tables."`
}

// DropPrevious starts to drop the tables before the last rebuild.
func (o *Ops) DropPrevious(ctx context.Context, who Caller, q None) (Job, error) {
	return o.Jobs.Start(ctx, who, "rebuild.drop", q)
}

// VerifyTables is the request of verify.start.
type VerifyTables struct {
	Campaign string `json:"campaign,omitempty" doc:"Compare only the campaign of this name."`
	Repair   bool   `json:"repair,omitempty" doc:"Replace the rows that differ."`
	Limit    int    `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"How many rows that differ to list, each with all of its changed columns; all are counted."`
}

// StartVerify starts a comparison of the read tables with the log.
func (o *Ops) StartVerify(ctx context.Context, who Caller, q VerifyTables) (Job, error) {
	return o.Jobs.Start(ctx, who, "verify.start", q)
}

// TakeBackup is the request of backup.start.
type TakeBackup struct {
	Name       string `json:"name" doc:"Of a new directory below the directory of backups of the server."`
	WithoutKey bool   `json:"without_key,omitempty" doc:"Leave the code key out. The backup can be decrypted with the key from elsewhere alone then."`
}

var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check returns a refusal if the name could be a path: it comes from the network.
func (t *TakeBackup) Check() error {
	if !backupName.MatchString(t.Name) || strings.HasSuffix(t.Name, ".incomplete") {
		return invalid("name", "must be 1 to 128 of A-Z a-z 0-9 . _ -, start with a letter or digit, and not end in .incomplete; the server has the directory, see serve --backups")
	}
	return nil
}

// StartBackup starts a backup of the log.
func (o *Ops) StartBackup(ctx context.Context, who Caller, q TakeBackup) (Job, error) {
	if err := q.Check(); err != nil {
		return Job{}, err
	}
	return o.Jobs.Start(ctx, who, "backup.start", q)
}

// BackupTaken is the result of backup.start. Unread counts messages that were copied and cannot be read by this version, and
// Notes names some.
type BackupTaken struct {
	Server         string    `json:"server,omitempty"`
	Dir            string    `json:"dir"`
	Log            string    `json:"log"`
	Lanes          int       `json:"lanes"`
	Begun          time.Time `json:"begun"`
	Ended          time.Time `json:"ended"`
	Streams        int       `json:"streams"`
	Messages       uint64    `json:"messages"`
	Bytes          int64     `json:"bytes"`
	CodeKey        bool      `json:"code_key"`
	KeyFingerprint string    `json:"key_fingerprint"`
	Unread         int       `json:"unread"`
	Notes          []string  `json:"notes,omitempty"`
}

// notesShown is how many messages that could not be read are named.
const notesShown = 20

// Backup describes the backup in a directory.
func Backup(m *backup.Manifest, dir string) BackupTaken {
	b := BackupTaken{Dir: dir, Log: m.Log, Lanes: m.Lanes, Begun: m.Started, Ended: m.Ended, Streams: len(m.Streams), Messages: m.Messages(),
		Bytes: m.Size(), CodeKey: m.Key, KeyFingerprint: m.KeyFingerprint, Unread: len(m.Unread)}
	for _, u := range m.Unread[:min(len(m.Unread), notesShown)] {
		b.Notes = append(b.Notes, fmt.Sprintf("copied, and cannot be read by this version: message %d of %s: %s", u.Sequence, u.Stream, u.Why))
	}
	return b
}

// NamedJob names a job.
type NamedJob struct {
	ID string `json:"id" doc:"Of the job."`
}

// ShowJob shows a job: its progress, or its result.
func (o *Ops) ShowJob(ctx context.Context, who Caller, q NamedJob) (Job, error) {
	job, err := o.Jobs.Show(ctx, q.ID)
	if err == nil && !job.shownTo(who) {
		return Job{}, ErrNoJob
	}
	o.showCustomers(who.Principal, &job)
	return job, err
}

// shownTo reports whether a caller may see a job, and stop it: those that it may start.
func (j *Job) shownTo(who Caller) bool {
	var q struct{ Campaign string }
	start := access.OperationOn(j.Action)
	if !start.Whole() {
		_ = json.Unmarshal(j.Request, &q) // a request of another form is of no campaign
	}
	return who.May(start, q.Campaign)
}

// ListJobs lists the last job of each kind, and of each key that changes coupons, newest first.
func (o *Ops) ListJobs(ctx context.Context, who Caller, q Paging) (Page[Job], error) {
	all, err := o.Jobs.List(ctx)
	if err != nil {
		return Page[Job]{}, err
	}
	all = slices.DeleteFunc(all, func(j Job) bool { return !j.shownTo(who) })
	for i := range all {
		o.showCustomers(who.Principal, &all[i])
	}
	return PageOf(all, q, func(j *Job) string { return j.ID })
}
