package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LogStream is a stream of the log.
type LogStream struct {
	Name     string    `json:"name"`
	First    uint64    `json:"first_sequence"`
	Last     uint64    `json:"last_sequence"`
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	LastAt   time.Time `json:"last_at,omitzero" doc:"When its last message was stored."`
	Replicas int       `json:"replicas"`
	Leader   string    `json:"leader,omitempty" doc:"In a cluster."`
	Peers    []LogPeer `json:"peers,omitempty" doc:"The other copies."`
}

// LogPeer is a copy of a stream.
type LogPeer struct {
	Name    string  `json:"name"`
	Current bool    `json:"current" doc:"It has all that the leader has."`
	Offline bool    `json:"offline,omitempty"`
	Lag     uint64  `json:"lag,omitempty" doc:"Operations that it lacks."`
	Active  float64 `json:"seconds_since" doc:"Since it was heard of."`
}

// ForeignMessage is a message that scrip did not write.
type ForeignMessage struct {
	Lane     int                 `json:"lane"`
	Sequence uint64              `json:"sequence"`
	At       time.Time           `json:"at"`
	Subject  string              `json:"subject"`
	Headers  map[string][]string `json:"headers,omitempty" doc:"As they are."`
	Bytes    int                 `json:"bytes"`
	Reason   string              `json:"reason"`
}

// LogShown is the log by its streams.
type LogShown struct {
	Streams []LogStream      `json:"streams" nullable:"false"`
	Foreign []ForeignMessage `json:"foreign" nullable:"false" doc:"After the last valid message of each lane, at most 20. Readers ignore them."`
}

// foreignMost is how many foreign messages are shown.
const foreignMost = 20

// streamNames are the streams of the log that may be there.
func (o *Ops) streamNames() (all []string) {
	for n := range o.Log.Lanes {
		all = append(all, topology.CmdStream(n), topology.EvtStream(n), topology.RmdStream(n))
	}
	for _, bucket := range []string{topology.StateBucket, topology.LeaseBucket, topology.SettingsBucket, topology.AccessBucket, topology.WebhooksBucket, topology.PushBucket, topology.JobsBucket, topology.OnceBucket, topology.OptOutBucket} {
		all = append(all, "KV_"+bucket)
	}
	return append(all, "OBJ_"+topology.SnapBucket, topology.PushWaitStream, topology.PushDeadStream, topology.PushOutStream, topology.AuditStream)
}

// ShowLog shows the streams of the log.
func (o *Ops) ShowLog(ctx context.Context, _ Caller, _ None) (LogShown, error) {
	out := LogShown{Streams: []LogStream{}, Foreign: []ForeignMessage{}}
	for _, name := range o.streamNames() {
		s, err := o.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // made when it is used
		}
		if err != nil {
			return out, fmt.Errorf("stream %s: %w", name, err)
		}
		i := s.CachedInfo()
		one := LogStream{Name: name, First: i.State.FirstSeq, Last: i.State.LastSeq, Messages: i.State.Msgs, Bytes: i.State.Bytes, LastAt: i.State.LastTime, Replicas: max(1, i.Config.Replicas)}
		if i.Cluster != nil {
			one.Leader = i.Cluster.Leader
			for _, p := range i.Cluster.Replicas {
				one.Peers = append(one.Peers, LogPeer{p.Name, p.Current, p.Offline, p.Lag, p.Active.Seconds()})
			}
		}
		out.Streams = append(out.Streams, one)
	}
	for n := range o.Log.Lanes {
		stream := eventlog.Events(o.JetStream, n).In(o.Log)
		tail, err := stream.Tail(ctx)
		if err != nil {
			return out, fmt.Errorf("lane %d: %w", n, err)
		}
		for _, sequence := range tail.Foreign {
			if len(out.Foreign) == foreignMost {
				return out, nil
			}
			raw, err := stream.Get(ctx, sequence)
			if err != nil {
				continue // removed since
			}
			out.Foreign = append(out.Foreign, ForeignMessage{n, sequence, raw.Time.UTC(), raw.Subject, raw.Header, len(raw.Data), "it has no valid seal of this log"})
		}
	}
	return out, nil
}

// ListSenders lists how far senders of reminders are, by name and lane.
func (o *Ops) ListSenders(ctx context.Context, _ Caller, q Paging) (Page[push.Position], error) {
	all, err := push.Positions(ctx, o.JetStream)
	if err != nil {
		return Page[push.Position]{}, err
	}
	all = slices.DeleteFunc(all, func(p push.Position) bool { return strings.HasPrefix(p.Name, "webhook-") })
	return PageOf(all, q, func(p *push.Position) string { return p.Name + " " + strconv.Itoa(p.Lane) })
}

// NamedSender names a sender of reminders.
type NamedSender struct {
	Sender string `json:"sender" maxLength:"64" doc:"Its name."`
}

// check refuses what is no name of a sender: a wildcard would match all, and what webhooks gave up is theirs.
func (n NamedSender) check() error {
	if (push.Options{Name: n.Sender}).Check() != nil || strings.HasPrefix(n.Sender, "webhook-") {
		return invalid("sender", "must be a name that scrip sender list shows: 1 to 32 of A-Z a-z 0-9 _ -, not of a webhook")
	}
	return nil
}

// ListSenderLetters is a page of dead letters of a sender.
type ListSenderLetters struct {
	NamedSender
	Paging
}

// SenderLetter is a message of reminders that were given up.
type SenderLetter struct {
	ID        uint64    `json:"id" doc:"0 = it cannot be read; error has its place in the stream."`
	Lane      int       `json:"lane"`
	Sequence  uint64    `json:"sequence"`
	Reminders int       `json:"reminders" doc:"How many were given up."`
	Tries     int       `json:"tries"`
	Error     string    `json:"error" doc:"Of the last try."`
	At        time.Time `json:"at"`
}

// SenderLetters lists reminders that a sender gave up, oldest first.
func (o *Ops) SenderLetters(ctx context.Context, _ Caller, q ListSenderLetters) (page Page[SenderLetter], err error) {
	if err := q.check(); err != nil {
		return page, err
	}
	after, _ := strconv.ParseUint(q.After, 10, 64) // 0 = from the oldest
	letters, last, bad, err := push.LettersAfter(ctx, o.JetStream, []string{q.Sender}, after, q.Limit)
	for _, l := range letters {
		page.Items = append(page.Items, SenderLetter{l.ID, l.Lane, l.Sequence, len(l.Reminders), l.Tries, l.Error, l.At})
	}
	for _, unreadable := range bad {
		page.Items = append(page.Items, SenderLetter{Error: unreadable.Error()})
	}
	if len(page.Items) == q.Limit {
		page.Next = strconv.FormatUint(last, 10)
	}
	return page, err
}

// DiscardOfSender are dead letters of a sender that are to be removed.
type DiscardOfSender struct {
	NamedSender
	IDs []uint64 `json:"ids,omitempty" nullable:"false" doc:"Of dead letters, at most 1,000."`
	All bool     `json:"all,omitempty" doc:"Instead of ids: the oldest 1,000."`
}

// discardMost is how many dead letters are discarded at once.
const discardMost = 1000

// DiscardSenderLetters removes dead letters of a sender.
func (o *Ops) DiscardSenderLetters(ctx context.Context, who Caller, q DiscardOfSender) (done LettersDone, err error) {
	if q.All == (len(q.IDs) > 0) || len(q.IDs) > discardMost {
		return done, &Refusal{Code: wire.Invalid, Message: "ids: give 1 to 1,000 of them, or all"}
	}
	if err := q.check(); err != nil {
		return done, err
	}
	var letters []push.DeadLetter
	if q.All {
		letters, _, _, err = push.LettersAfter(ctx, o.JetStream, []string{q.Sender}, 0, discardMost)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(q.IDs))) {
		if err != nil {
			break
		}
		var one []push.DeadLetter
		if one, _, _, err = push.LettersAfter(ctx, o.JetStream, []string{q.Sender}, id-1, 1); len(one) == 1 && one[0].ID == id {
			letters = append(letters, one[0])
		}
	}
	if err != nil {
		return done, err
	}
	stream, err := o.JetStream.Stream(ctx, topology.PushDeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) { // and so there are no letters
		err = nil
	}
	for i := 0; i < len(letters) && err == nil; i++ {
		if err = stream.DeleteMsg(ctx, letters[i].ID); err == nil {
			done.Discarded++
		} else if errors.Is(err, jetstream.ErrMsgNotFound) {
			err = nil
		}
	}
	if err == nil || done.Discarded > 0 { // those before the one that failed are gone
		err = errors.Join(err, o.record(ctx, who, audit.DeadLetters, "discard", q.Sender))
	}
	return done, err
}
