package manage_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
)

// commandStream is a client of a stream of commands.
type commandStream struct {
	send io.WriteCloser
	got  *bufio.Reader
}

func openStream(t *testing.T, r *apitest.Rig, as string) *commandStream {
	t.Helper()
	body, send := io.Pipe()
	resp, err := http.DefaultClient.Do(r.Request(t, as, "POST", "/v1/commands", body, "Content-Type", "application/x-ndjson", "Scrip-Stream", "1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = send.Close(); _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return &commandStream{send, bufio.NewReader(resp.Body)}
}

// expect reads a line.
func (s *commandStream) expect(t *testing.T, parts ...string) {
	t.Helper()
	line, err := s.got.ReadString('\n')
	for _, part := range parts {
		if err != nil || !strings.Contains(line, part) {
			t.Fatalf("%q, %v; want %s", line, err, part)
		}
	}
}

// TestStreamOfCommands: outcomes come while the body is still open, in the order of the lines, and the stream ends with the body
// or with its key.
func TestStreamOfCommands(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 300})
	r.Key(t, "producer")
	s := openStream(t, r, "producer")
	claim := func(i int) string {
		return fmt.Sprintf(`{"id":"s%d","type":"claim","campaign":"%s","customer_id":"customer %d"}`+"\n", i, c, i)
	}
	write := func(s *commandStream, text string) {
		t.Helper()
		if _, err := io.WriteString(s.send, text); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 { // each is answered before the next is sent
		write(s, claim(i))
		s.expect(t, fmt.Sprintf(`{"id":"s%d","status":"claimed"`, i))
	}
	var many strings.Builder
	for i := 3; i < 200; i++ {
		many.WriteString(claim(i))
	}
	go func() {
		_, _ = io.WriteString(s.send, many.String()+"no line\n"+`{"id":"p","type":"pause_campaign","campaign":"x"}`+"\n\n"+claim(0))
	}()
	for i := 3; i < 200; i++ {
		s.expect(t, fmt.Sprintf(`{"id":"s%d","status":"claimed"`, i))
	}
	s.expect(t, `"refusal":"invalid"`)
	s.expect(t, `{"id":"p","status":"refused"`)
	s.expect(t, `{"id":"s0","status":"claimed"`, `"repeat":true`)
	_ = s.send.Close()
	if rest, err := io.ReadAll(s.got); err != nil || len(rest) > 0 {
		t.Errorf("after the body: %q, %v", rest, err)
	}

	s = openStream(t, r, "producer")
	go func() { _, _ = io.WriteString(s.send, claim(0)+strings.Repeat("x", 17<<10)+"\n"+claim(1)) }()
	s.expect(t, `"repeat":true`)
	s.expect(t, `"refusal":"invalid"`, "the stream ends")
	if rest, _ := io.ReadAll(s.got); len(rest) > 0 {
		t.Errorf("after a long line: %q", rest)
	}

	s = openStream(t, r, "producer")
	write(s, claim(0))
	s.expect(t, `"repeat":true`)
	r.Ask(t, "", "DELETE", "/v1/keys/"+r.IDs["producer"], nil).Want(t, 200)
	if rest, _ := io.ReadAll(s.got); len(rest) > 0 {
		t.Errorf("after the key was revoked: %q", rest)
	}
	r.Ask(t, "", "POST", "/v1/commands", "{}", "Content-Type", "application/x-ndjson", "Scrip-Stream", "yes").Problem(t, 400, "malformed", "header.Scrip-Stream")
}
