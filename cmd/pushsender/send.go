package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/logline"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/receiver"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

const (
	// idempotencyHeader has a hash of the array's keys: equal reminders have an equal one.
	idempotencyHeader = "Idempotency-Key"
	// answerMost is how many bytes of a response are read; a 207 with all 500 indexes is far shorter.
	answerMost = 64 << 10
	// quoteMost is how many of them are logged at debug level.
	quoteMost = 200
	// dialWait is how long connecting to the gateway may take.
	dialWait = 30 * time.Second
)

// send is the root command: it sends until its context ends, or nobody will ever read its standard output.
func (m *Main) send(cmd *cobra.Command, _ []string) error {
	ctx, log := cli.Serve(cmd, logline.Options{Level: m.level()})
	m.opts.Logger = log.Logger()
	ctx, m.lost = context.WithCancelCause(ctx)
	defer m.lost(nil)
	nc, js, err := m.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	p, err := push.New(js, m.opts)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	err = p.Run(ctx, m.sender())
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	s := p.Stats()
	fmt.Fprintf(cmd.ErrOrStderr(), "pushed %d; opted out %d; failed tries %d; in dead letters %d; ignored %d; delivered again %d\n",
		s.Pushed, s.OptedOut, s.FailedTries, s.Dead, s.Skipped, s.Repeated)
	return err
}

func (m *Main) sender() push.Func {
	if m.webhook == "" {
		return m.print
	}
	// Each worker keeps its connection. No variable of the environment may redirect customer ids.
	transport := receiver.Transport(&net.Dialer{Timeout: dialWait}, max(1, m.opts.Workers))
	if m.proxy != "" {
		transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(m.proxy) }
	}
	w := newWebhook(m.webhook, transport, m.opts.Logger)
	w.secrets, w.clock = m.secrets, m.Clock
	return w.push
}

// print writes a line for each. While the reader of a pipe reads nothing, the reminders wait, and are printed to the next process if
// this one is to end. When it is gone this process ends: they are not delivered, and no reader can come.
func (m *Main) print(ctx context.Context, batch []push.Reminder) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i := range batch {
		if err := enc.Encode(&batch[i]); err != nil {
			return err
		}
	}
	notRead := &push.Away{Err: errors.New("standard output is not read")}
	select {
	case m.printing <- struct{}{}:
	case <-ctx.Done():
		return notRead
	}
	written := make(chan error, 1)
	go func() {
		_, err := m.Out.Write(out.Bytes())
		<-m.printing
		written <- err
	}()
	select {
	case err := <-written:
		if errors.Is(err, syscall.EPIPE) && m.lost != nil {
			m.lost(fmt.Errorf("the reader of standard output is gone: %w; reminders that were not printed are delivered to the next pushsender", err))
			return &push.Away{Err: err}
		}
		return err
	case <-ctx.Done():
		return notRead
	}
}

// checkURL checks a flag that is empty or a URL. The error does not repeat the value, which may have a password.
func checkURL(flag, s, example string) error {
	if s == "" {
		return nil
	}
	if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return cli.Usagef("--%s must be an http or https URL such as %s", flag, example)
	}
	return nil
}

// webhook posts batches. Its errors are logged and stored in dead letters, so they have neither the body of a response,
// which may quote customers, nor the parts of the URL that may be secret. The body is logged at debug level.
type webhook struct {
	url     string
	client  *http.Client
	logger  *slog.Logger
	secrets []signature.Secret // none = not signed
	clock   wall.Clock
}

func newWebhook(url string, transport http.RoundTripper, logger *slog.Logger) *webhook {
	return &webhook{url: url, client: receiver.Client(transport), logger: logger, clock: wall.Machine}
}

func (w *webhook) push(ctx context.Context, batch []push.Reminder) error {
	body, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(idempotencyHeader, nameOf(batch))
	if len(w.secrets) > 0 {
		signature.Set(req.Header, nameOf(batch), w.clock.Now(), body, w.secrets...)
	}
	resp, err := w.client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = fmt.Errorf("POST %s: %w", withoutSecrets(req.URL), failed.Err)
		if ctx.Err() != nil {
			return err // it took too long, which may be because of these reminders
		}
		return &push.Away{Err: err}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	switch {
	case resp.StatusCode == http.StatusMultiStatus:
		return partly(answer, err, len(batch))
	case resp.StatusCode/100 == 2:
		return nil // the body does not matter
	}
	quote := strings.ToValidUTF8(string(answer[:min(len(answer), quoteMost)]), "")
	w.logger.DebugContext(ctx, "the webhook's response", "status", resp.Status, "body", quote)
	return judged(resp, fmt.Errorf("the webhook responded %s", resp.Status), w.clock.Now())
}

// judged decides whether the gateway is away, refuses these reminders, or failed for either reason.
func judged(resp *http.Response, err error, now time.Time) error {
	switch code := resp.StatusCode; {
	case signature.Away(code):
		return &push.Away{Err: err, RetryAfter: signature.RetryAfter(resp.Header, now)}
	case code/100 == 5:
		return err
	}
	return &push.Refused{Err: err}
}

// withoutSecrets is a URL without user, password, query and fragment.
func withoutSecrets(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// partly is the result of a 207, which lists the reminders that were not delivered.
func partly(answer []byte, readErr error, reminders int) error {
	failed, why, err := signature.Failed(answer, readErr, reminders)
	switch {
	case err != nil:
		return fmt.Errorf("the webhook: %w", err)
	case len(failed) == 0:
		return nil
	case why == "":
		why = "the webhook reported a failure"
	}
	return &push.Partial{Failed: failed, Err: errors.New(why)}
}

// nameOf is equal for equal reminders, from every process.
func nameOf(batch []push.Reminder) string {
	sum := sha256.New()
	for _, r := range batch {
		sum.Write([]byte(r.Key + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
