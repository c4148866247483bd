package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// httpCallers is how many connections claim-http has at most: half of those that scrip allows, as connections of the run
	// before may not be closed yet.
	httpCallers = 128
	// httpLines is how many claims a request of NDJSON has; httpLineCallers connections send them.
	httpLines, httpLineCallers = 100, 32
	// bareName and natsName are the recipes whose CPU a claim over HTTP is compared with, linesName that of NDJSON.
	bareName, natsName, linesName = "http-bare", "scrip-nats", "scrip-ndjson"
)

// target is where the claims of a plan are sent.
type target struct {
	addr string
	// authorization is the header; "" = the server checks none, and gets one of the same length.
	authorization string
	// bare: the server stores nothing, so its answers have no codes.
	bare bool
	// check is that of the job.
	check func(ctx context.Context, t tally) error
}

// overHTTP sends claims to scrip, so many in each request.
func (s *scripServer) overHTTP(ctx context.Context, p *plan, callers, lines int) (job, error) {
	t, err := s.prepare(ctx, p)
	return t.open(p, callers, lines), err
}

func openScripLines(ctx context.Context, b *bench, p *plan) (job, error) {
	return b.scrip.overHTTP(ctx, p, httpLineCallers, httpLines)
}

func openBare(_ context.Context, b *bench, p *plan) (job, error) {
	return target{addr: b.bare.addr, bare: true}.open(p, httpCallers, 1), nil
}

// open sends claims over HTTP, so many in each request, on connections that are kept alive.
func (t target) open(p *plan, callers, lines int) job {
	return t.job(p, callers, lines, func(c *httpCaller) sender {
		if lines > 1 {
			return c.claimLines
		}
		return each(c.claim)
	})
}

// job has callers with a connection each, which sends so many operations in each request.
func (t target) job(p *plan, callers, batch int, send func(*httpCaller) sender) job {
	if t.authorization == "" {
		t.authorization = "Bearer sk_producer_" + strings.Repeat("0", 48)
	}
	j := job{callers: callers, batch: batch, inFlight: callers * batch, check: t.check, close: func() {}}
	j.caller = func(ctx context.Context, _ int) (caller, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.addr)
		if err != nil {
			return caller{}, err
		}
		c := &httpCaller{target: t, p: p, conn: conn, r: bufio.NewReader(conn)}
		return caller{send: send(c), close: func() { _ = conn.Close() }}, nil
	}
	return j
}

// httpCaller has a connection of its own.
type httpCaller struct {
	target
	p         *plan
	conn      net.Conn
	r         *bufio.Reader
	req, body []byte
	answer    bytes.Buffer
}

// commandID is the id of an operation's claim.
func (p *plan) commandID(i int) string { return p.id + "-" + strconv.Itoa(p.first+i) }

// post sends body and reads the answer, which is valid until the next call.
func (c *httpCaller) post(ctx context.Context, path, kind, id string) (status int, err error) {
	c.req = fmt.Appendf(c.req[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Type: %s\r\n", path, c.addr, c.authorization, kind)
	if id != "" {
		c.req = fmt.Appendf(c.req, "Idempotency-Key: %s\r\n", id)
	}
	c.req = fmt.Appendf(c.req, "Content-Length: %d\r\n\r\n%s", len(c.body), c.body)
	return c.exchange(ctx)
}

// get reads a path. The answer is valid until the next call.
func (c *httpCaller) get(ctx context.Context, path string) (status int, err error) {
	c.req = fmt.Appendf(c.req[:0], "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n\r\n", path, c.addr, c.authorization)
	return c.exchange(ctx)
}

// exchange sends the request and reads the answer.
func (c *httpCaller) exchange(ctx context.Context) (status int, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.req); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, err
	}
	c.answer.Reset()
	_, err = io.Copy(&c.answer, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close(), ctx.Err())
}

// claim sends one claim.
func (c *httpCaller) claim(ctx context.Context, i int) answer {
	c.body = fmt.Appendf(c.body[:0], `{"customer_id":%q}`, c.p.customer(i))
	status, err := c.post(ctx, "/v1/campaigns/"+c.p.campaign(i)+"/claims", "application/json", c.p.commandID(i))
	switch {
	case err != nil:
		return failure(err)
	case status == http.StatusConflict && bytes.Contains(c.answer.Bytes(), []byte(`"sold_out"`)):
		return answer{verdict: refused}
	case status == http.StatusOK:
		return failure(errRepeat)
	case status != http.StatusCreated:
		return failure(fmt.Errorf("status %d: %s", status, c.answer.Bytes()))
	case c.bare:
		return answer{verdict: won, code: code(0, i)}
	}
	return claimed(wire.ParseOutcome(bytes.TrimSpace(c.answer.Bytes())))
}

// claimLines sends claims as lines of one request.
func (c *httpCaller) claimLines(ctx context.Context, from, to int, answers []answer) error {
	c.body = c.body[:0]
	for i := from; i < to; i++ {
		cmd := wire.Command{Type: wire.Claim, ID: c.p.commandID(i), Campaign: c.p.campaign(i), CustomerID: c.p.customer(i)}
		c.body = append(cmd.AppendJSON(c.body), '\n')
	}
	status, err := c.post(ctx, "/v1/commands", "application/x-ndjson", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, c.answer.Bytes())
	}
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace(c.answer.Bytes()), []byte("\n"))
	if len(lines) != to-from {
		return fmt.Errorf("%d lines were sent, %d outcomes came", to-from, len(lines))
	}
	for n, line := range lines {
		answers[from+n] = claimed(wire.ParseOutcome(line))
	}
	return nil
}

// prepare creates the plan's campaigns, and once a key of role producer.
func (s *scripServer) prepare(ctx context.Context, p *plan) (t target, err error) {
	if err = s.create(ctx, p); err == nil {
		t, err = s.target(ctx)
	}
	t.check = func(ctx context.Context, t tally) error { return s.given(ctx, p, t) }
	return t, err
}

// target has a key of role producer, which it makes once.
func (s *scripServer) target(ctx context.Context) (t target, err error) {
	u, err := url.Parse(s.desc.HTTPURL)
	if err != nil {
		return t, err
	}
	if s.key == "" {
		if s.key, err = s.makeKey(ctx, u.Host); err != nil {
			return t, err
		}
	}
	return target{addr: u.Host, authorization: "Bearer " + s.key}, nil
}

// makeKey makes a key of role producer and waits until it is in force.
func (s *scripServer) makeKey(ctx context.Context, addr string) (string, error) {
	out, err := exec.CommandContext(ctx, s.binary, "access", "create", "scripbench", "--role", "producer", "--data", s.data()).Output()
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	key := strings.TrimSpace(string(out))
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return key, process.Poll(ctx, s.proc, pollEvery, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/settings", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized {
			return fmt.Errorf("%w: the key is in force", process.ErrWaiting)
		}
		return nil
	})
}

// openScripRequests sends the claims of claim-http as requests to the micro service, with as many in flight.
func openScripRequests(ctx context.Context, b *bench, p *plan) (job, error) {
	if err := b.scrip.create(ctx, p); err != nil {
		return job{}, err
	}
	j := job{check: func(ctx context.Context, t tally) error { return b.scrip.given(ctx, p, t) }, close: func() {}, batch: 1}
	return b.scrip.requests(p, j, httpCallers)
}

// The goals of claim-http.
const (
	mostCPU     = 1.3
	leastOfRate = 4
)

// httpGoals compares the medians of claim-http with its goals, as far as the systems were measured.
func httpGoals(systems []report.System) (goals []report.Goal) {
	by := map[string]report.Run{}
	for _, s := range systems {
		by[s.Name] = s.Median
	}
	one, bare, nats, lines := by[report.Subject], by[bareName], by[natsName], by[linesName]
	cpu := func(m report.Run) float64 { return m.ProcessCPU * 1e6 / float64(max(m.Done, 1)) }
	if sum := cpu(bare) + cpu(nats); cpu(one) > 0 && cpu(bare) > 0 && cpu(nats) > 0 {
		goals = append(goals, report.Goal{Most: mostCPU, Is: cpu(one) / sum,
			Name: fmt.Sprintf("CPU of scrip's process: a claim over HTTP %.1fus / (bare request %.1fus + claim over NATS %.1fus)", cpu(one), cpu(bare), cpu(nats))})
	}
	if one.Rate > 0 && lines.Rate > 0 {
		goals = append(goals, report.Goal{Least: leastOfRate, Is: lines.Rate / one.Rate,
			Name: fmt.Sprintf("rate: %d lines of NDJSON a request (CPU %.1fus a claim) / one claim a request", httpLines, cpu(lines))})
	}
	return goals
}
