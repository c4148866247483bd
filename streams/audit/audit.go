package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/share"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Kind is what was done.
type Kind string

// The kinds. Requests for entries name them, see ops.ListAudit.
const (
	Login    Kind = "login"    // a key was used
	Keys     Kind = "keys"     // a key was made, revoked or replaced
	Settings Kind = "settings" // a run-time setting was changed
	Export   Kind = "export"   // codes, coupons or events were exported
	LookUp   Kind = "lookup"   // codes or customers were shown in clear
	Jobs     Kind = "jobs"     // a rebuild, a verification or a backup was started, or ended
	Webhooks Kind = "webhooks" // an endpoint of webhooks was made, changed, removed or disabled
	// Commands: a person sent a command that is no shop's; its event has the rest.
	Commands Kind = "commands"
	// DeadLetters: a dead letter was sent again, discarded or opened again.
	DeadLetters Kind = "deadletters"
	// OptOuts: a person changed the list of customers who want no reminders.
	OptOuts Kind = "optouts"
)

// Kinds are they.
var Kinds = []Kind{Login, Keys, Settings, Export, LookUp, Commands, Jobs, Webhooks, DeadLetters, OptOuts}

// The actions of kind Export.
const (
	Coupons = "codes"      // About is the campaign
	Events  = "events"     // About is the filter
	Raw     = "raw events" // a key that may read messages of the log logged in: what it reads passes no server
)

// Entry is one line of the audit stream.
type Entry struct {
	// At is when it was done, by the server's clock. Append sets it where it is zero.
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	// Actor is the name of the key, or of a Local, and Key the key's id, "" for a Local.
	Actor string `json:"actor"`
	Key   string `json:"key,omitempty"`
	// Action is what was done, such as create, revoke, show; and About what it was done to, such as the id of a key, the name
	// of a setting or a campaign. Neither holds a secret or a code.
	Action string `json:"action"`
	About  string `json:"about,omitempty"`
	// Via is how: nats, http, console. From is the address of the client, where it is known.
	Via  string `json:"via,omitempty"`
	From string `json:"from,omitempty"`
	// RequestID is of the request, which its answer has, too.
	RequestID string `json:"request_id,omitempty"`

	// Sequence is the entry's in the stream. Read sets it.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Actor is who does something, such as an access.Principal: a name, and the id of a key.
type Actor interface{ Actor() (name, key string) }

// By returns an entry of an actor.
func By(who Actor, kind Kind, action, about string) Entry {
	name, key := who.Actor()
	return Entry{Kind: kind, Actor: name, Key: key, Action: action, About: about}
}

// Coupon is what the look-up of one coupon is about. byN: it was named by campaign and n, not by its code.
func Coupon(campaign string, n uint32, byN bool) string {
	about := fmt.Sprintf("%s %d", campaign, n)
	if byN {
		about += " by n"
	}
	return about
}

const (
	// appendWait bounds the write of an entry.
	appendWait = 5 * time.Second
	// loginEvery is the least time between two recorded log-ins of a key.
	loginEvery = time.Hour
	// maxLogins bounds the log-ins remembered; when there are more, all are forgotten, and recorded again.
	maxLogins = 100_000
	// maxText bounds About and Action, in bytes.
	maxText = 512
)

// ShareBytes are what a key may have recorded and changed at a server at once; it is changed by tests alone.
var ShareBytes = 16 << 20

const (
	// shareTime is after how long that is free again: 8 KiB a second.
	shareTime = 2048 * time.Second
	// entryBytes is what an entry counts at least.
	entryBytes = 512
)

// Log is the audit stream. It may be used by several goroutines at once. A nil Log records nothing.
type Log struct {
	js    jetstream.JetStream
	clock wall.Clock
	share *share.Share // by the id of a key

	mu     sync.Mutex
	logins map[login]time.Time

	recorded testsignal.Signal[login] // for tests: a log-in is stored
}

type login struct{ key, actor, via string }

func loginOf(e Entry) login { return login{e.Key, e.Actor, e.Via} }

// Open prepares the log; it sends no request. topology.Ensure has made the stream. A nil clock is the machine's.
func Open(js jetstream.JetStream, clock wall.Clock) *Log {
	if clock == nil {
		clock = wall.Machine
	}
	return &Log{js: js, clock: clock, share: share.New(ShareBytes, shareTime, clock), logins: map[login]time.Time{}}
}

// Room takes room in the share of a key for an act that is recorded, or whose change is kept for ever, and for so many bytes of it. It is
// called before the act. The error is a *share.UsedUp; "" = no key, which has no bound.
func (l *Log) Room(key string, bytes int) error {
	if l == nil {
		return nil
	}
	if wait := l.share.Take(key, entryBytes+bytes); wait > 0 {
		return &share.UsedUp{Of: "what is recorded for ever", Wait: wait}
	}
	return nil
}

// Used is the share of a key in bytes, the most that one of them uses of it, and how often one was refused.
func (l *Log) Used() (bytes, used int, refused uint64) { return l.share.Used() }

// Append records an entry. It returns when the entry is stored. After an error it may be stored or not; the caller does not
// answer the action then. What was only read takes its room here: a *share.UsedUp, and it is not shown.
func (l *Log) Append(ctx context.Context, e Entry) error {
	if l == nil {
		return nil
	}
	if e.Kind == LookUp || e.Kind == Export {
		if err := l.Room(e.Key, 0); err != nil {
			return err
		}
	}
	if e.At.IsZero() {
		e.At = l.clock.Now()
	}
	line, err := e.encode()
	if err != nil {
		return fmt.Errorf("encoding an entry of the audit stream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, appendWait)
	defer cancel()
	if _, err := l.js.Publish(ctx, topology.AuditSubject, line, jetstream.WithExpectStream(topology.AuditStream)); err != nil {
		return fmt.Errorf("recording %s %s in the audit stream: %w", e.Kind, e.Action, err)
	}
	return nil
}

// encode returns the line of an entry.
func (e Entry) encode() ([]byte, error) {
	e.At, e.Sequence = e.At.UTC().Truncate(time.Microsecond), 0
	e.Action, e.About = wire.Shorten(e.Action, maxText), wire.Shorten(e.About, maxText)
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	return line.Bytes(), err
}

// LoggedIn records a log-in, and what else it allows, unless one of the same key and way was recorded within the last hour. It
// does not wait: failed is called after an error, by another goroutine. The next log-in is recorded then; none depends on it.
func (l *Log) LoggedIn(failed func(error), entries ...Entry) {
	if l == nil || !l.due(entries[0]) {
		return
	}
	go func() { // ends within appendWait
		if err := l.login(context.Background(), entries); err != nil {
			failed(err)
		}
	}()
}

// login records a log-in that is due.
func (l *Log) login(ctx context.Context, entries []Entry) error {
	who := loginOf(entries[0])
	for _, e := range entries {
		if err := l.Append(ctx, e); err != nil {
			l.mu.Lock()
			delete(l.logins, who)
			l.mu.Unlock()
			return err
		}
	}
	l.recorded.Send(who)
	return nil
}

// due reports whether a log-in is to be recorded, and remembers it.
func (l *Log) due(e Entry) bool {
	who, now := loginOf(e), l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, seen := l.logins[who]; seen && now.Sub(at) < loginEvery {
		return false
	}
	if len(l.logins) >= maxLogins {
		clear(l.logins)
	}
	l.logins[who] = now
	return true
}

// Filter selects entries; the zero value selects all.
type Filter struct {
	Actor string // name or id of a key
	Kind  Kind
	// About is what it was done to, or how that starts; "" = anything.
	About string
	// Since and Until bound At, Until excluded; zero = no bound.
	Since, Until time.Time
	// Before is the sequence of the first entry that is too new; 0 = none.
	Before uint64
}

func (f *Filter) takes(e *Entry) bool {
	return (f.Before == 0 || e.Sequence < f.Before) && (f.Actor == "" || e.Actor == f.Actor || e.Key == f.Actor) && (f.Kind == "" || e.Kind == f.Kind) && strings.HasPrefix(e.About, f.About) &&
		!e.At.Before(f.Since) && (f.Until.IsZero() || e.At.Before(f.Until))
}

const (
	// clocks is how far the clock of a server that wrote an entry may differ from that of the stream's leader.
	clocks = 10 * time.Minute
	// readMost is how many entries Read reads, readPart how many of them at once.
	readMost, readPart = 4000, 500
)

// Read returns the newest entries that the filter selects, at most limit, newest first. next is Before of the Filter that goes on
// with older ones, 0 = there are none. Where the filter selects few, there may be a next after less than limit entries, or none. A
// line that this version cannot read is an entry with its text in About.
func (l *Log) Read(ctx context.Context, f Filter, limit int) (all []Entry, next uint64, err error) {
	stream := eventlog.Bucket(l.js, topology.AuditStream)
	bounds, err := stream.Bounds(ctx)
	if natsx.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading the audit stream: %w", err)
	}
	first, upto := max(bounds.First, 1), bounds.Last+1 // from upto on all are read, or too new
	if f.Before > 0 {
		upto = min(upto, f.Before)
	}
	for read := 0; upto > first && read < readMost; read += readPart {
		from, older := max(upto, first+readPart)-readPart, false
		var part []Entry
		err := stream.Span(ctx, from, upto-1, func(raw *eventlog.Raw) {
			older = older || !f.Since.IsZero() && raw.Time.Before(f.Since.Add(-clocks))
			e := parse(raw.Data, raw.Time)
			if e.Sequence = raw.Sequence; f.takes(&e) {
				part = append(part, e)
			}
		})
		if err != nil {
			return nil, 0, fmt.Errorf("reading the audit stream: %w", cmp.Or(ctx.Err(), err))
		}
		slices.Reverse(part)
		if all = append(all, part...); len(all) > limit {
			all = all[:limit]
			return all, all[limit-1].Sequence, nil
		}
		if upto = from; older {
			return all, 0, nil
		}
	}
	if upto <= first {
		upto = 0
	}
	return all, upto, nil
}

func parse(line []byte, stored time.Time) Entry {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil || e.Kind == "" {
		return Entry{At: stored.UTC(), Kind: "unknown", About: wire.Shorten(strings.ToValidUTF8(string(line), "?"), maxText)}
	}
	return e
}
