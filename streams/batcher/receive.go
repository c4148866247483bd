package batcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// receive handles every message of the inbox: PubAcks (a<route>-<token>) and outcomes (o<route>-<token>).
func (c *Batcher) receive(msg *nats.Msg) {
	token := msg.Subject[len(c.inbox)+1:]
	r, seq, ok := c.address(token)
	if !ok {
		c.counters.mismatched.Add(1)
		return
	}
	out := c.scratch[:0]
	r.mu.Lock()
	switch a := r.attempts[seq]; {
	case a == nil && token[0] == 'a':
		// The PubAck of lines that were answered already: usual when the owner is quick.
		c.mover.Answered()
	case a == nil:
		// Answered before, or all receivers gave up.
		c.counters.late.Add(1)
	case msg.Header.Get("Status") == "503" && len(msg.Data) == 0:
		// No responders: no stream and no service took it, so nothing was stored. A server may be starting.
		r.dead(a)
		a.batch.retryAfterNoResponders(c.now(), c.opts.RetryAfter)
		c.mover.Unanswered()
	case token[0] == 'a':
		out = r.acked(a, msg.Data, out)
	case msg.Header.Get(micro.ErrorCodeHeader) != "":
		// The service does not know the result either.
		a.batch.retryAfterNoResponders(c.now(), c.opts.RetryAfter)
	default:
		c.mover.Answered()
		out = r.answered(a, msg.Data, out)
	}
	// Send the next message first, then wake the callers that got their answer.
	r.pump()
	r.mu.Unlock()
	c.deliver(out)
	c.scratch = out
}

// address finds the route and attempt of an inbox token.
func (c *Batcher) address(token string) (*route, uint64, bool) {
	if len(token) < 2 || token[0] != 'a' && token[0] != 'o' {
		return nil, 0, false
	}
	number, seq, ok := strings.Cut(token[1:], "-")
	if !ok {
		return nil, 0, false
	}
	lane, err := strconv.Atoi(number)
	if err != nil || lane < 0 || lane > directRoute {
		return nil, 0, false
	}
	n, err := strconv.ParseUint(seq, 36, 64)
	r := c.routes[lane].Load()
	return r, n, err == nil && r != nil
}

// acked handles the PubAck. A positive one means that the lines are stored and ordered, which answers no caller: the
// outcome does. Some errors mean that nothing of this message was stored; after any other it may have been.
func (r *route) acked(a *attempt, data []byte, out []delivery) []delivery {
	var ack struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil || ack.Error == nil {
		a.batch.acked = true
		r.c.mover.Answered()
		return out
	}
	b := a.batch
	if !notStored(ack.Error.ErrCode, ack.Error.Description) {
		b.retryAfterNoResponders(r.c.now(), r.c.opts.RetryAfter)
		return out
	}
	r.dead(a)
	if b.live > 0 {
		// An earlier attempt may have been stored: only an outcome may answer these lines.
		return out
	}
	why := fmt.Sprintf("the log could not store the command: %s (%d); try again later", ack.Error.Description, ack.Error.ErrCode)
	for i := range b.entries {
		if b.entries[i].to == nil {
			continue
		}
		o := wire.Outcome{ID: b.entries[i].id, Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: why}
		out = append(out, delivery{to: b.take(i), line: o.AppendJSON(nil)})
		r.c.counters.notDurable.Add(1)
	}
	r.finish(b)
	return out
}

// notStored reports whether JetStream's error to a publish is one after which nothing was stored: no room in the stream,
// the account or the server, or too large. After others it may have been: a write or an fsync may have failed half way,
// and a replicated stream may refuse one copy of a message and apply another.
func notStored(code int, description string) bool {
	switch code {
	case 10023, 10047, 10054, 10167:
		return true
	case 10077: // "store failed": also how a full stream answers
		return strings.Contains(description, "maximum")
	}
	return false
}

// answered delivers the lines of an outcome message. A message that does not fit its command message is dropped: a guess
// could give one customer another one's code.
func (r *route) answered(a *attempt, data []byte, out []delivery) []delivery {
	b := a.batch
	lines := len(a.which)
	if a.which == nil {
		lines = len(b.entries)
	}
	data = bytes.TrimSuffix(data, []byte{'\n'})
	if len(data) == 0 || bytes.Count(data, []byte{'\n'})+1 != lines {
		r.c.counters.mismatched.Add(1)
		return out
	}
	if r.direct && bytes.Contains(data, []byte(`"refusal":"not_durable"`)) {
		// The refusal is about this attempt only. An earlier one, sent to another service or before a reconnect, may have been
		// stored: then only an outcome that was decided may answer.
		r.dead(a)
		if b.live > 0 {
			b.retryAfterNoResponders(r.c.now(), r.c.opts.RetryAfter)
			return out
		}
	}
	mismatched := false
	for j := range lines {
		line := data
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			line, data = data[:end:end], data[end+1:]
		}
		i := j
		if a.which != nil {
			i = int(a.which[j])
		}
		switch {
		case b.entries[i].to == nil:
		case !isFor(line, b.entries[i].id):
			mismatched = true
		default:
			out = append(out, delivery{to: b.take(i), line: line})
		}
	}
	if mismatched {
		r.c.counters.mismatched.Add(1)
	}
	if b.waiting == 0 {
		r.finish(b)
	}
	return out
}

const idStart = `{"id":"`

// isFor reports whether an outcome line answers the command with that id.
func isFor(line []byte, id string) bool {
	if n := len(idStart) + len(id); len(line) > n && line[n] == '"' &&
		string(line[:len(idStart)]) == idStart && string(line[len(idStart):n]) == id {
		return true
	}
	o, err := wire.ParseOutcome(line)
	return err == nil && o.ID == id
}
