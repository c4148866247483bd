package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

const (
	// maxCSV bounds the file of one import, in bytes: about 10 million codes, of which 24 bytes each are in memory. Send a
	// longer list as several files.
	maxCSV = 128 << 20
	// streamWait is how long a client may take for the next part of an answer.
	streamWait = 30 * time.Second
	// progressEvery is the interval of progress lines, while the body or answers arrive.
	progressEvery = time.Second
	// rejectsShown is how many unusable rows the report names.
	rejectsShown = 100
)

// Import is one line of the answer to an import: progress, and at the end the report.
type Import struct {
	ID         string         `json:"id" doc:"Of the import. Send the same file with the same Idempotency-Key again to resume it."`
	Status     string         `json:"status" enum:"importing,imported,refused,failed" doc:"importing: progress. The last line has another one; failed: it is not known which codes are in, send the file again."`
	Campaign   string         `json:"campaign"`
	Done       int            `json:"done" doc:"Codes that were decided so far."`
	Rows       int            `json:"rows,omitempty" doc:"Of the file, without its header and empty ones."`
	Count      uint64         `json:"count" doc:"New codes."`
	There      uint64         `json:"already_there,omitempty"`
	Duplicates int            `json:"duplicates,omitempty" doc:"Equal to an earlier row."`
	Rejected   int            `json:"rejected,omitempty" doc:"Rows without a usable code. The others are in."`
	Rejects    []ImportReject `json:"rejects,omitempty" nullable:"false" doc:"The first 100 of them."`
	Refusal    string         `json:"refusal,omitempty"`
	Message    string         `json:"message,omitempty"`
}

// ImportReject is an unusable row.
type ImportReject struct {
	Row    int    `json:"row" doc:"Line of the file, from 1."`
	Reason string `json:"reason"`
}

// ImportWanted is what an import is into.
type ImportWanted struct {
	OneCampaign
	WeakCodes string `json:"weak_codes,omitempty" enum:"0,1" doc:"1: codes of fewer than 8 symbols, which can be guessed, are imported, too."`
}

func (a *API) codeRoutes() {
	readStream(a, Route{Method: http.MethodPost, Path: "/v1/campaigns/{campaign}/codes", ID: "importCodes", Tag: "codes", Summary: "Import codes of your own",
		About: "The body is CSV, its codes in column `code` or the first one. The answer starts at once: a line of progress each second, " +
			"and the report as the last one. Codes that the campaign has are skipped: to resume, send the same file again. " +
			"A corrected file may have the Idempotency-Key of the first one.",
		Operation: access.OpImportCodes, Body: maxCSV},
		huma.Operation{
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"text/csv": {Schema: text("CSV in UTF-8.")}}},
			Responses:   answer("200", "Progress, and the report as the last line.", lines(a.schema(reflect.TypeFor[Import]()))),
		}, a.importCodes)
	a.exportRoute()
}

func (a *API) importCodes(w http.ResponseWriter, req *http.Request, in *ImportWanted) {
	p, campaign := principal(req.Context()), in.Campaign
	if err := checkCampaign(campaign); err != nil {
		a.refuse(w, err)
		return
	}
	if problem := web.CheckMediaType(req, "text/csv"); problem != nil {
		problem.Write(w)
		return
	}
	id := commandID(p, req.Header.Get("Idempotency-Key"))
	ctx, end := a.session(w, req, a.slots.imports)
	if end == nil {
		return
	}
	defer end()
	// The status shows whether it can be done at all.
	look, cancel := context.WithTimeout(ctx, queryWait)
	found, err := a.Queries.Campaign(look, campaign)
	cancel()
	switch {
	case err != nil:
		a.refuse(w, unanswered("campaign "+campaign, err))
		return
	case !found.Imported && found.Codes > 0:
		problem := web.New(web.Code(wire.Invalid), "the codes of campaign "+campaign+" are generated; create one with codes 0 to import them")
		problem.Campaign = campaign
		problem.Write(w)
		return
	}
	if p.Person() {
		if err := a.room(p); err != nil {
			a.refuse(w, err)
			return
		}
		if err := a.record(ctx, audit.Commands, wire.ImportCodes.String(), campaign); err != nil {
			a.refuse(w, err)
			return
		}
	}
	run := &importing{api: a, w: w, stream: web.NewStream(w), line: Import{ID: id, Status: "importing", Campaign: campaign}, request: req.Header.Get(web.RequestID)}
	if err := run.stream.Duplex(); err != nil && req.ProtoMajor < 2 {
		a.Logger.Debug("an import answers after its body was read", "err", err)
	}
	w.Header().Set("Content-Type", ndjson)
	w.Header().Set("Scrip-Command-Id", id)
	run.print()
	run.all(ctx, http.MaxBytesReader(w, req.Body, maxCSV), in.WeakCodes == "1", p.By())
}

// importing is one import.
type importing struct {
	api     *API
	w       http.ResponseWriter
	stream  web.Stream
	line    Import
	request string // X-Request-Id
	printed time.Time
	readErr error
	gone    error // of writing: the client has gone, the import goes on to the end of what arrives
}

// print writes the line as it is.
func (i *importing) print() {
	if i.gone != nil {
		return
	}
	i.printed = time.Now()
	text, err := json.Marshal(&i.line)
	if err != nil {
		i.gone = err
		return
	}
	i.stream.Writing(streamWait)
	if _, err = i.w.Write(append(text, '\n')); err == nil {
		err = i.stream.Flush()
	}
	i.gone = err
}

// progress writes a line of progress if none was written for progressEvery. It is called for each part of the body that arrives
// and for each answer.
func (i *importing) progress() {
	if time.Since(i.printed) < progressEvery {
		return
	}
	rejects := i.line.Rejects
	i.line.Rejects = nil
	i.print()
	i.line.Rejects = rejects
}

// watched reads a body. arrived is called after each part.
type watched struct {
	io.Reader
	arrived func()
}

func (p watched) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.arrived()
	return n, err
}

// errEnough ends reading after the import has failed.
var errEnough = errors.New("the import ended")

func (i *importing) all(ctx context.Context, body io.Reader, weak bool, by string) {
	var report codescsv.Report
	codes := func(yield func(string) bool) {
		var err error
		report, err = codescsv.Read(watched{i.stream.Body(body), i.progress}, weak, func(code string) error {
			if !yield(code) {
				return errEnough
			}
			return ctx.Err()
		}, func(r codescsv.Reject) error {
			if len(i.line.Rejects) < rejectsShown {
				i.line.Rejects = append(i.line.Rejects, ImportReject{r.Row, r.Reason})
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			i.readErr = err
		}
	}
	progress := func(done int) {
		i.line.Done = done
		i.progress()
	}
	out, err := client.Import(ctx, wire.Command{ID: i.line.ID, Campaign: i.line.Campaign, WeakCodes: weak, RequestID: i.request}, codes, progress,
		func(ctx context.Context, cmd wire.Command, fn func(wire.Outcome, error)) error {
			_, err := i.api.Lanes.Send(ctx, &cmd, command.Call{By: by, Deadline: time.Now().Add(importWait), To: &command.Func{ID: cmd.ID, Do: fn}})
			return err
		})
	i.line.Rows, i.line.Duplicates, i.line.Rejected, i.line.Count = report.Rows, report.Duplicates, report.Rejected, out.Count
	if err == nil {
		err = i.readErr // the codes read before this error are in
	}
	switch {
	case err != nil:
		i.line.Status, i.line.Message = "failed", err.Error()+"; send the same file again, codes that are in are skipped"
	case out.Refused():
		i.line.Status, i.line.Refusal, i.line.Message = wire.StatusRefused, string(out.Refusal), out.Message
	default:
		i.line.Status, i.line.There = wire.StatusImported, uint64(report.Codes)-out.Count
	}
	i.print()
}

// importWait is how long a line of an import may take.
const importWait = 30 * time.Second
