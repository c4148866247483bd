package console

import (
	"encoding/json"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

var operatePages = []page{
	{path: "/dead-letters", name: "letters", title: "Dead letters", nav: true, operation: access.OpReadDeadLetters, load: loadLetters},
	{path: "/dead-letters/{id}", name: "letter", operation: access.OpReadDeadLetters, load: func(v *view) any {
		v.Title = "Dead letter " + v.r.PathValue("id")
		d := get[readmodel.ShownLetter](v, "/v1/dead-letters/"+escape(v.r.PathValue("id")))
		v.Problem = d.Problem
		return d
	}},
	{path: "/tables", name: "tables", title: "Tables", nav: true, operation: access.OpReadStatus, live: true, load: loadTables},
	{path: "/jobs/{id}", name: "job", operation: access.OpReadJobs, live: true, load: loadJob},
}

var operateActs = []act{
	{id: "retryDeadLetter", title: "Mend and retry", fields: []string{"id", "lines", "command_id"}, then: "/dead-letters", about: "Sends the line again, unchanged or as you correct it. Lines keep their ids: a second retry has no second effect.",
		cli: "scrip deadletter retry {id} [--payload {lines}] [--id {command_id}]"},
	{id: "discardDeadLetters", title: "Discard", fields: []string{"ids", "note"}, then: "/dead-letters", about: "Nothing is to be done about it. The log and the tables keep it, and it can be opened again.",
		cli: "scrip deadletter discard {ids} [--note {note}]"},
	{id: "discardAllDeadLetters", of: "discardDeadLetters", title: "Discard all of a filter", fields: []string{"all", "stream", "lane", "since", "cause", "note"}, then: "/dead-letters",
		cli: "scrip deadletter discard [--all={all}] [--stream {stream}] [--lane {lane}] [--since {since}] [--cause {cause}] [--note {note}]"},
	{id: "reopenDeadLetters", of: "discardDeadLetters", title: "Open again", fields: []string{"ids", "undo"}, then: "/dead-letters", cli: "scrip deadletter discard {ids} [--undo={undo}]"},
	{id: "startVerification", title: "Verify", fields: []string{"campaign", "repair"}, about: "Compares every row with the log, beside live traffic. With repair, rows that differ are replaced.",
		cli: "scrip verify [--campaign {campaign}] [--repair={repair}]"},
	{id: "startRebuild", title: "Rebuild", about: "Makes new tables from the log, and exchanges them with those in use in one transaction. Claims and redemptions go on, and so do queries.",
		cli: "scrip rebuild"},
	{id: "undoRebuild", title: "Undo the last rebuild", cli: "scrip rebuild --undo"},
	{id: "dropPreviousTables", title: "Drop the tables before the last rebuild", cli: "scrip rebuild --drop-previous"},
	{id: "stopJob", title: "Stop", then: "/jobs/{id}", cli: "scrip job stop {id}"},
	{id: "startBackup", title: "Take a backup", fields: []string{"name", "without_key"}, cli: "scrip backup {name} [--without-key={without_key}]"},
}

// lettersData are dead letters, and the causes of those that are open.
type lettersData struct {
	Part[ops.Page[readmodel.Letter]]
	Groups Part[ops.Page[ops.LetterGroup]]
}

func loadLetters(v *view) any {
	d := lettersData{Part: list[ops.Page[readmodel.Letter]](v, "/v1/dead-letters", "state", v.value("state"), "stream", v.value("stream"), "lane", v.value("lane"), "cause", v.value("cause"))}
	if v.value("state") == "" && v.value("after") == "" {
		d.Groups = get[ops.Page[ops.LetterGroup]](v, "/v1/dead-letters/groups", "limit", perPage)
	}
	return d
}

// tablesData are the lanes' tables and the last jobs about them.
type tablesData struct {
	Status Part[status.Status]
	Jobs   Part[ops.Page[ops.Job]]
}

func loadTables(v *view) any {
	return tablesData{Status: get[status.Status](v, "/v1/status"), Jobs: get[ops.Page[ops.Job]](v, "/v1/jobs")}
}

// jobData is a job with what follows from its progress.
type jobData struct {
	Part[ops.Job]
	Request, Result []row
	// Left is how long it will take at the rate so far, 0 = not known.
	Left time.Duration
	// Coupons is the result of a change of many coupons.
	Coupons *ops.CouponsChanged
	Filter  map[string]json.RawMessage
}

func loadJob(v *view) any {
	id := v.r.PathValue("id")
	v.Title = "Job " + id
	d := jobData{Part: get[ops.Job](v, "/v1/jobs/"+escape(id))}
	v.Problem = d.Problem
	d.complete()
	return d
}

// complete adds what follows from the job.
func (d *jobData) complete() {
	job := &d.Data
	d.Request, d.Result = rows(job.Request), rows(job.Result)
	for i := range d.Result {
		if d.Result[i] == (row{Name: "behind"}) { // null
			d.Result[i].Value = "unknown"
		}
	}
	if p := job.Progress; p != nil && p.Done > 0 && p.Total > p.Done && !job.Ended() {
		spent := job.Updated.Sub(job.Started)
		d.Left = time.Duration(float64(spent) * float64(p.Total-p.Done) / float64(p.Done)).Round(time.Second)
	}
	if job.Kind == ops.CouponsJob && job.State == ops.JobDone && json.Valid(job.Result) {
		d.Coupons = &ops.CouponsChanged{}
		_ = json.Unmarshal(job.Result, d.Coupons) // what it has not is 0
		_ = json.Unmarshal(job.Request, &d.Filter)
	}
}

// Stop is the button that stops the job, where it has not ended.
func (d jobData) Stop(v *view) map[string]string {
	if d.Data.ID == "" || d.Data.Ended() || d.Data.StoppedBy != "" {
		return nil
	}
	return v.Button("stopJob", "id", d.Data.ID)
}

// Again is the button that does in earnest what was counted: with the same selection, and no more than were counted.
func (d jobData) Again(v *view) map[string]string {
	if d.Coupons == nil || plain(d.Filter["dry_run"]) != "true" || d.Coupons.Matched == 0 {
		return nil
	}
	id := map[string]string{"coupons.void": "voidCoupons", "coupons.extend": "extendCoupons"}[d.Data.Action]
	query := []any{"most", d.Coupons.Matched}
	for name, value := range d.Filter {
		if name != "dry_run" && name != "most" {
			query = append(query, name, plain(value))
		}
	}
	return v.Button(id, query...)
}
