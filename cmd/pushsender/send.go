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
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/push"
)

const (
	// idempotencyHeader holds a name of the array's keys: the same reminders have the same one.
	idempotencyHeader = "Idempotency-Key"
	// answerMost is how much of an answer is read; a 207 naming all 500 is far below.
	answerMost = 64 << 10
	// quoteMost is how many bytes of it are logged at debug level.
	quoteMost = 200
)

// send is the command without a name: it sends until it is told to end.
func (m *Main) send(cmd *cobra.Command, _ []string) error {
	js, err := m.connect()
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	p, err := push.New(js, m.opts)
	if err != nil {
		return &usageError{err}
	}
	err = p.Run(cmd.Context(), m.sender())
	s := p.Stats()
	fmt.Fprintf(m.Err, "pushed %d; failed tries %d; dead letters hold %d; passed over %d; delivered again %d\n",
		s.Pushed, s.FailedTries, s.Dead, s.Skipped, s.Repeated)
	return err
}

// sender is what is done with reminders.
func (m *Main) sender() push.Func {
	if m.webhook == "" {
		return m.print
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = max(1, m.opts.Workers) // each worker keeps its connection
	transport.Proxy = nil                                  // a variable of the environment sends no customer ids elsewhere
	if m.proxy != "" {
		transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(m.proxy) }
	}
	return newWebhook(m.webhook, transport, m.opts.Logger).push
}

// print writes a line for each. A pipe that is closed is a push that failed.
func (m *Main) print(_ context.Context, batch []push.Reminder) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i := range batch {
		if err := enc.Encode(&batch[i]); err != nil {
			return err
		}
	}
	m.printing.Lock()
	defer m.printing.Unlock()
	_, err := m.Out.Write(out.Bytes())
	return err
}

// checkURL checks a flag that holds a URL or nothing. The error does not repeat the value: it may hold a password.
func checkURL(flag, s, example string) error {
	if s == "" {
		return nil
	}
	if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &usageError{fmt.Errorf("--%s is no http or https URL; give a URL such as %s", flag, example)}
	}
	return nil
}

// webhook posts batches. Its errors reach logs and dead letters, so they hold neither the body of a response, which may
// quote customers, nor the parts of the URL that may hold a secret. The body is logged at debug level.
type webhook struct {
	url    string
	client *http.Client
	logger *slog.Logger
}

// newWebhook follows no redirect: net/http would ask the other place with GET and without the reminders, and its 200 would
// count as told.
func newWebhook(url string, transport http.RoundTripper, logger *slog.Logger) *webhook {
	return &webhook{url, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, logger}
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
	resp, err := w.client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		return fmt.Errorf("POST %s: %w", withoutSecrets(req.URL), failed.Err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	switch {
	case resp.StatusCode == http.StatusMultiStatus:
		return partly(answer, err)
	case resp.StatusCode/100 == 2:
		return nil // whatever it says
	}
	quote := strings.ToValidUTF8(string(answer[:min(len(answer), quoteMost)]), "")
	w.logger.DebugContext(ctx, "the webhook's response", "status", resp.Status, "body", quote)
	return fmt.Errorf("the webhook answers %s", resp.Status)
}

// withoutSecrets is a URL without user, password, query and fragment.
func withoutSecrets(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// partly reads an answer that says who was not told.
func partly(answer []byte, err error) error {
	var said struct {
		Failed []int  `json:"failed"`
		Error  string `json:"error"`
	}
	if err == nil {
		err = json.Unmarshal(answer, &said)
	}
	if err != nil {
		return fmt.Errorf(`the webhook answers 207, but not {"failed":[…]}: %w`, err)
	}
	if said.Failed == nil {
		return errors.New(`the webhook answers 207 without "failed"`)
	}
	if len(said.Failed) == 0 {
		return nil
	}
	if said.Error == "" {
		said.Error = "the webhook says so"
	}
	return &push.Partial{Failed: said.Failed, Err: errors.New(said.Error)}
}

// nameOf is the same for the same reminders, whoever sends them.
func nameOf(batch []push.Reminder) string {
	sum := sha256.New()
	for _, r := range batch {
		sum.Write([]byte(r.Key + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
