package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// headerRoom is left of a message for what NATS adds, in bytes.
const headerRoom = 1 << 10

// startAction carries out an action of people in a goroutine of its own, because it waits for JetStream or for tables.
func (s *Service) startAction(req *request, data []byte) {
	who := req.who
	if who.Name == "" {
		who = access.Local("") // the credentials of the data directory, of a client that names no user
	}
	s.background(s.queries, req, func(ctx context.Context) {
		by := ops.Caller{Principal: who, Via: "nats"}
		fields, err := req.endpoint.action.Parse(data, &by)
		var answer any
		if err == nil {
			answer, err = req.endpoint.action.Do(ctx, s.opts.Ops, by, fields)
		}
		if err != nil {
			req.refused(err)
			return
		}
		body, err := json.Marshal(map[string]any{"data": answer})
		if err != nil {
			req.fail(err)
			return
		}
		if most := s.nc.MaxPayload(); most > 0 && int64(len(body)) > most-headerRoom {
			req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: fmt.Sprintf("the answer has %d bytes, more than a message may have; give a smaller limit", len(body))})
			return
		}
		req.answer(nil, body, done)
	})
}

// refused answers with the refusal of an action: a micro error 403 for what the caller may not do, a 503 for what may be retried
// or read again, and an ordinary reply for all else.
func (r *request) refused(err error) {
	var no *ops.Refusal
	switch {
	case !errors.As(err, &no) || no.Code == ops.Unavailable || no.Code == ops.UnknownOutcome:
		r.fail(err)
	case no.Code == ops.Forbidden:
		r.deny(no.Message)
	default:
		r.refuse(&wire.Outcome{Refusal: no.Code, Message: no.Message})
	}
}

// record adds an entry to the audit stream. An answer without its entry is not sent.
func (s *Service) record(ctx context.Context, e audit.Entry) error {
	e.Via = "nats"
	return s.opts.Audit.Append(ctx, e)
}
