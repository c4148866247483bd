package client

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"iter"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// importAhead is how many lines of one import are in flight at once: 4 MiB of codes, enough to keep a lane busy and far
// below what may be pending.
const importAhead = 256

// ImportCodes adds codes of your own to a campaign, in order, any number of them. They are sent in lines of up to 16 KiB,
// whose ids are the import's id and a hash of the line's codes. So the same codes under the same [ID] again, after an error
// or a crash, import only what is missing, and other codes under it are imported, too. The id may have 52 bytes; without one
// the import gets a new one.
//
// progress, if not nil, is called from this goroutine with the number of codes answered so far: as answers arrive, at the
// latest when the next line is sent.
//
// The outcome is for all lines: Count is how many codes were new. A refusal, for an unusable code or by the lane, ends the
// import; its message has the number of codes imported nevertheless. An *UnknownError carries the id of the whole import.
func (c *Client) ImportCodes(ctx context.Context, campaign string, codes iter.Seq[string], progress func(done int), opts ...Option) (wire.Outcome, error) {
	cmd := wire.Command{Type: wire.ImportCodes, Campaign: campaign}
	for _, o := range opts {
		o(&cmd)
	}
	command.EnsureID(&cmd)
	return Import(ctx, cmd, codes, progress, c.DoAsync)
}

// Import is ImportCodes for a program that sends commands in another way. cmd has the campaign and the id of the import; send
// sends a command as DoAsync does.
func Import(ctx context.Context, cmd wire.Command, codes iter.Seq[string], progress func(done int), send func(context.Context, wire.Command, func(wire.Outcome, error)) error) (wire.Outcome, error) {
	cmd.Type = wire.ImportCodes
	if len(cmd.ID) > maxImportID {
		return invalid(&cmd, fmt.Errorf("id: has %d bytes, at most %d are allowed for an import", len(cmd.ID), maxImportID)), nil
	}
	im := &importing{
		command: send, cmd: cmd, progress: progress, answers: make(chan chunkAnswer, importAhead), sent: map[string]bool{},
		sum: wire.Outcome{ID: cmd.ID, Status: wire.StatusImported, Campaign: cmd.Campaign, Repeat: true},
	}
	room := wire.MaxLine - len(cmd.AppendJSON(nil)) - len(`,"codes":[]`) - (wire.MaxCommandID - len(cmd.ID))
	var chunk []string
	size, row := 0, 0
	for text := range codes {
		row++
		normal, err := code.NormalizeImported(text)
		if err != nil {
			im.refuse(invalid(&cmd, fmt.Errorf("codes: code %d: %w", row, err)))
			break
		}
		if cost := len(normal) + len(`"",`); size+cost <= room {
			size += cost
		} else {
			if !im.send(ctx, chunk) {
				break
			}
			chunk, size = nil, cost
		}
		chunk = append(chunk, normal)
	}
	if row == 0 {
		return invalid(&cmd, fmt.Errorf("codes: there are none; give at least one")), nil
	}
	if im.going() {
		im.send(ctx, chunk)
	}
	for im.underWay > 0 {
		im.take(ctx)
	}
	return im.result()
}

// chunkSymbols is how much of a line's hash is in its id: 55 bits. Of the 10,000 lines of a large import, two have the same id
// with a chance of 10^-9.
const chunkSymbols = 11

// maxImportID leaves room for "-" and the hash of a line in an id of 64 bytes.
const maxImportID = wire.MaxCommandID - 1 - chunkSymbols

var chunkEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// chunkID is the id of a line. It depends on the line's codes: a lane answers a known id with the first outcome and does not
// compare codes, so a corrected file under the id of the first one would lose its corrections.
func chunkID(importID string, codes []string) string {
	h := sha256.New()
	for _, c := range codes {
		_, _ = io.WriteString(h, c+"\n") // never fails; no code has a newline
	}
	return importID + "-" + chunkEncoding.EncodeToString(h.Sum(nil))[:chunkSymbols]
}

// importing is one import; it is owned by the goroutine that called Import.
type importing struct {
	command  func(context.Context, wire.Command, func(wire.Outcome, error)) error
	cmd      wire.Command
	progress func(int)
	answers  chan chunkAnswer // room for all lines in flight: callbacks never wait

	sent     map[string]bool // ids of lines
	underWay int
	done     int // codes answered
	sum      wire.Outcome
	refusal  *wire.Outcome
	err      error
	maybe    bool // a line whose answer is not known may have had its effect
}

type chunkAnswer struct {
	codes int
	out   wire.Outcome
	err   error
}

func (im *importing) going() bool { return im.refusal == nil && im.err == nil }

// send sends one line, after waiting until fewer than importAhead are in flight.
func (im *importing) send(ctx context.Context, codes []string) bool {
	for im.underWay >= importAhead {
		im.take(ctx)
	}
	for im.underWay > 0 && len(im.answers) > 0 {
		im.took(<-im.answers)
	}
	if !im.going() || len(codes) == 0 {
		return false
	}
	cmd := im.cmd
	cmd.ID = chunkID(im.cmd.ID, codes)
	if im.sent[cmd.ID] { // the same codes twice: its outcome would be counted twice
		im.count(len(codes))
		return true
	}
	im.sent[cmd.ID] = true
	cmd.Codes = codes
	err := im.command(ctx, cmd, func(out wire.Outcome, err error) {
		im.answers <- chunkAnswer{codes: len(codes), out: out, err: err}
	})
	if err != nil {
		im.fail(err)
		return false
	}
	im.underWay++
	return true
}

// take waits for the next answer.
func (im *importing) take(ctx context.Context) {
	select {
	case a := <-im.answers:
		im.took(a)
	case <-ctx.Done():
		// The lines in flight continue; their callbacks find room in the channel.
		im.underWay, im.maybe = 0, true
		im.fail(ctx.Err())
	}
}

// took takes an answer.
func (im *importing) took(a chunkAnswer) {
	im.underWay--
	switch {
	case a.err != nil:
		im.fail(a.err)
	case a.out.Refused():
		im.refuse(a.out)
	default:
		im.sum.Count += a.out.Count
		im.sum.Repeat = im.sum.Repeat && a.out.Repeat
		im.count(a.codes)
	}
}

// count adds codes that are answered.
func (im *importing) count(codes int) {
	im.done += codes
	if im.progress != nil {
		im.progress(im.done)
	}
}

func (im *importing) refuse(out wire.Outcome) {
	if im.refusal == nil {
		im.refusal = &out
	}
}

func (im *importing) fail(err error) {
	im.maybe = im.maybe || unknown(err)
	if im.err == nil {
		im.err = err
	}
}

func (im *importing) result() (wire.Outcome, error) {
	switch {
	case im.refusal != nil:
		out := *im.refusal
		out.ID = im.cmd.ID
		out.Message = fmt.Sprintf("%s (%d other codes of this import are in)", out.Message, im.done)
		out.Count = im.sum.Count
		return out, nil
	case im.err != nil && (im.done > 0 || im.maybe):
		return wire.Outcome{}, &UnknownError{ID: im.cmd.ID, Cause: fmt.Errorf("%d codes are imported: %w", im.done, im.err)}
	case im.err != nil:
		return wire.Outcome{}, &NotSentError{ID: im.cmd.ID, Cause: im.err}
	}
	return im.sum, nil
}
