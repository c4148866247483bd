package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// Letters are the dead letters of the read tables. The answers are of a package above this one. Errors that no retry changes are
// refusals.
type Letters interface {
	// List reads a part of a list. Like Groups it calls Turn.
	List(ctx context.Context, q ListLetters, masked bool) (Page[any], error)
	Show(ctx context.Context, q ShowLetter, masked bool) (any, error)
	// Retry sends the lines of a dead letter again, and Discard settles dead letters, or opens them again.
	Retry(ctx context.Context, who Caller, q RetryLetter) (any, error)
	Discard(ctx context.Context, q DiscardLetters) (LettersDone, error)
	// Groups groups open ones by cause, a part of all of them after another, the newest first.
	Groups(ctx context.Context, after string) (Page[LetterGroup], error)
}

// LetterGroup are open dead letters of one cause.
type LetterGroup struct {
	Cause   string    `json:"cause" doc:"The reason, without what it quotes and without numbers."`
	Stream  string    `json:"stream" enum:"commands,events" doc:"Of lines of which streams."`
	Count   int64     `json:"count" doc:"Among the newest 10,000 open ones, and up to as many more."`
	Oldest  time.Time `json:"oldest"`
	Newest  time.Time `json:"newest"`
	Example string    `json:"example" doc:"The id of the newest one."`
}

// mostGrouped is how many open dead letters are grouped, but for those of the last part.
const mostGrouped = 10_000

// GroupLetters groups open dead letters by cause, the largest group first.
func (o *Ops) GroupLetters(ctx context.Context, who Caller, q Paging) (Page[LetterGroup], error) {
	if o.Letters == nil {
		return Page[LetterGroup]{}, ErrNoTables
	}
	open := int64(0)
	parts, err := list(ctx, o, who, Paging{Limit: math.MaxInt}, func(ctx context.Context, p Paging) (Page[LetterGroup], error) {
		part, err := o.Letters.Groups(ctx, p.After)
		for i := range part.Items {
			open += part.Items[i].Count
		}
		if open >= mostGrouped {
			part.Next = ""
		}
		return part, err
	})
	if err != nil {
		return Page[LetterGroup]{}, err
	}
	page, err := PageOf(mergedGroups(parts.Items), q, func(g *LetterGroup) string { return g.Stream + " " + g.Cause })
	page.Looked = parts.Looked
	return page, err
}

// mergedGroups makes one group of those of one cause, of which the first is the newest.
func mergedGroups(parts []LetterGroup) (all []LetterGroup) {
	at := map[[2]string]int{}
	for i := range parts {
		g := &parts[i]
		n, ok := at[[2]string{g.Stream, g.Cause}]
		if !ok {
			at[[2]string{g.Stream, g.Cause}] = len(all)
			all = append(all, *g)
			continue
		}
		all[n].Count, all[n].Oldest = all[n].Count+g.Count, g.Oldest
	}
	slices.SortFunc(all, func(a, b LetterGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Cause, b.Cause), strings.Compare(a.Stream, b.Stream))
	})
	return all
}

// SelectLetters selects dead letters.
type SelectLetters struct {
	Stream string    `json:"stream,omitempty" doc:"commands, events, or the name of a stream."`
	Lane   *int      `json:"lane,omitempty" doc:"The number of a lane."`
	Since  time.Time `json:"since,omitzero" doc:"Those of this time or later."`
	Cause  string    `json:"cause,omitempty" maxLength:"1024" doc:"Those of this cause, as their group has it."`
}

// ListLetters is a page of dead letters.
type ListLetters struct {
	SelectLetters
	State string `json:"state,omitempty" enum:"open,retried,discarded,all" default:"open" doc:"Those in this state."`
	Paging
}

// ErrNoTables: this server was started without read tables.
var ErrNoTables error = &Refusal{Code: Unavailable, Message: "this server has no read tables; start it with --postgres URL, or use another one"}

// ListLetters lists dead letters, newest first. A caller who does not see codes and customers gets the reasons, without what they quote,
// and no lines.
func (o *Ops) ListLetters(ctx context.Context, who Caller, q ListLetters) (Page[any], error) {
	if o.Letters == nil {
		return Page[any]{}, ErrNoTables
	}
	answer, err := list(ctx, o, who, q.Paging, func(ctx context.Context, p Paging) (Page[any], error) {
		q.Paging = p
		return o.Letters.List(ctx, q, !who.Clear())
	})
	if err == nil {
		err = o.seen(ctx, who, "")
	}
	return answer, err
}

// ShowLetter names a dead letter.
type ShowLetter struct {
	ID string `json:"id" doc:"Of the dead letter, such as SCRIP_CMD_0.12.3."`
}

// ShowLetter shows a dead letter with its whole line, masked as ListLetters masks it.
func (o *Ops) ShowLetter(ctx context.Context, who Caller, q ShowLetter) (any, error) {
	if o.Letters == nil {
		return nil, ErrNoTables
	}
	answer, err := o.Letters.Show(ctx, q, !who.Clear())
	if err == nil {
		err = o.seen(ctx, who, q.ID)
	}
	return answer, err
}

// seen records that lines were shown in clear, before the answer is given.
func (o *Ops) seen(ctx context.Context, who Caller, about string) error {
	if !who.Clear() {
		return nil
	}
	return o.record(ctx, who, audit.LookUp, "deadletters", about)
}

// RetryLetter is a dead letter that is sent again.
type RetryLetter struct {
	ID        string   `json:"id" doc:"Of the dead letter, such as SCRIP_CMD_0.12.3."`
	Lines     []string `json:"lines,omitempty" nullable:"false" doc:"Corrected lines to send instead, at most 1,000. They take effect with your rights."`
	CommandID string   `json:"command_id,omitempty" doc:"For a line without an id; else one is derived from the dead letter."`
}

// linesMost is the most lines of a retry.
const linesMost = 1000

// RetryLetter sends a refused line again.
func (o *Ops) RetryLetter(ctx context.Context, who Caller, q RetryLetter) (any, error) {
	switch {
	case o.Letters == nil:
		return nil, ErrNoTables
	case len(q.Lines) > linesMost:
		return nil, invalid("lines", "are more than 1,000")
	}
	answer, err := o.Letters.Retry(ctx, who, q)
	if err == nil {
		err = o.settled(ctx, who, "retry", q.ID)
	}
	return answer, err
}

// DiscardLetters are dead letters that nothing is to be done about.
type DiscardLetters struct {
	IDs  []string `json:"ids,omitempty" nullable:"false" doc:"Of dead letters, at most 1,000."`
	All  bool     `json:"all,omitempty" doc:"Instead of ids: all open ones that stream, lane, since and cause select."`
	Undo bool     `json:"undo,omitempty" doc:"Open those of ids again."`
	Note string   `json:"note,omitempty" doc:"Stored with them."`
	SelectLetters
}

// LettersDone is how many dead letters were discarded or opened again.
type LettersDone struct {
	Discarded int64 `json:"discarded"`
	Reopened  int64 `json:"reopened"`
}

// DiscardLetters settles dead letters, or opens them again. Nothing is removed from the log or the tables.
func (o *Ops) DiscardLetters(ctx context.Context, who Caller, q DiscardLetters) (LettersDone, error) {
	filtered := q.Stream != "" || q.Lane != nil || !q.Since.IsZero() || q.Cause != ""
	switch {
	case o.Letters == nil:
		return LettersDone{}, ErrNoTables
	case q.All && (len(q.IDs) > 0 || q.Undo):
		return LettersDone{}, invalid("all", "takes no ids and no undo")
	case !q.All && filtered:
		return LettersDone{}, &Refusal{Code: wire.Invalid, Field: "all", Message: "stream, lane, since and cause belong to all"}
	case !q.All && (len(q.IDs) == 0 || len(q.IDs) > linesMost):
		return LettersDone{}, invalid("ids", "give 1 to 1,000 ids of dead letters, or all")
	}
	action, about := "discard", strings.Join(q.IDs, " ")
	if q.Undo {
		action = "reopen"
	}
	if q.All {
		selected, err := json.Marshal(q.SelectLetters)
		if err != nil {
			return LettersDone{}, err
		}
		about = "all " + string(selected)
	}
	done, err := o.Letters.Discard(ctx, q)
	if err == nil || done != (LettersDone{}) { // those before the one that failed stay discarded
		err = errors.Join(err, o.settled(ctx, who, action, about))
	}
	return done, err
}

// settled records what was done about dead letters.
func (o *Ops) settled(ctx context.Context, who Caller, action, about string) error {
	if err := o.record(ctx, who, audit.DeadLetters, action, about); err != nil {
		return &Refusal{Code: UnknownOutcome, Message: "it was done, and is not recorded: " + err.Error()}
	}
	return nil
}
