package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// validationsAtOnce is how many lines of one request wait for a lane at once.
const validationsAtOnce = 32

// lines is a request of several lines. Each is a request of its own, whose reply is its line of the answer.
//
//	one message ──> request, request, … ──> lanes ──> outcome lines ──> one message, in the order of the lines
//
// What a crash does: there is no reply, and the sender repeats all lines under their ids.
type lines struct {
	req  *request
	out  [][]byte     // of each line
	left atomic.Int32 // without a reply
}

// several returns the lines of a request, nil = it has one object, which may have line breaks.
func several(data []byte) (all [][]byte) {
	first, _, more := bytes.Cut(bytes.TrimSpace(data), []byte{'\n'})
	if !more || !json.Valid(first) {
		return nil
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			all = append(all, line)
		}
	}
	return all
}

// startLines starts a request of several lines on an endpoint of a command or of validations.
func (s *Service) startLines(req *request, campaign string, all [][]byte, size int) {
	if len(all) > wire.MaxMessageLines || size > wire.MaxMessage {
		req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: fmt.Sprintf("the request has %d lines and %d bytes, at most %d and %d are allowed; split it",
			len(all), size, wire.MaxMessageLines, wire.MaxMessage)})
		return
	}
	l := &lines{req: req, out: make([][]byte, len(all))}
	l.left.Store(int32(len(all)))
	each := make([]request, len(all))
	for i := range each {
		each[i] = *req
		each[i].of, each[i].at = l, i
	}
	if req.endpoint.query == nil {
		for i := range all {
			s.command(&each[i], campaign, all[i])
		}
		return
	}
	s.background(s.queries, req, func(ctx context.Context) {
		var g errgroup.Group
		g.SetLimit(validationsAtOnce)
		for i := range all {
			g.Go(func() error {
				s.startQuery(&each[i], all[i], func(answer func(context.Context)) { answer(ctx) })
				return nil
			})
		}
		_ = g.Wait() // each line has its own answer
	})
}

// put stores the reply to one line, and sends the answer with the last one. What would be an error of a request is a refusal here; a
// line without status has no known outcome.
func (l *lines) put(r *request, header nats.Header, body []byte) {
	refusal := map[string]wire.Refusal{"403": "forbidden", "429": "rate_limited"}[header.Get(micro.ErrorCodeHeader)]
	if refusal != "" {
		o := wire.Outcome{ID: r.id, Status: wire.StatusRefused, Refusal: refusal, Message: header.Get(micro.ErrorHeader)}
		body = o.AppendJSON(nil)
	}
	l.out[r.at] = body
	if l.left.Add(-1) > 0 {
		return
	}
	answer := slices.Concat(bytes.Join(l.out, []byte{'\n'}), []byte{'\n'})
	if most := r.service.nc.MaxPayload(); most > 0 && int64(len(answer)) > most-headerRoom {
		l.req.problem("503", failed, fmt.Sprintf("the outcomes have %d bytes, more than a message may have; send the lines again, with their ids, in smaller requests", len(answer)), nats.Header{})
		return
	}
	l.req.send(nil, answer)
}
