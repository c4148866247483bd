package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// bodies answers with the number of bytes of a request's body.
func bodies(most int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, problem := Body(w, r, nil, most)
		if problem != nil {
			problem.Write(w)
			return
		}
		fmt.Fprintf(w, "%d", len(body))
	})
}

// A body at the limit is read; a longer one is refused without being read, however its length is given.
func TestBody(t *testing.T) {
	s := httptest.NewServer(bodies(1000))
	defer s.Close()
	for _, size := range []int{0, 1, 999, 1000, 1001, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if chunked {
				body = struct{ io.Reader }{body} // hides its length
			}
			resp, err := http.Post(s.URL, "text/plain", body)
			if err != nil {
				if size > 1000 {
					continue // the server has closed the connection while the client wrote
				}
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if want := fmt.Sprint(size); size <= 1000 && (err != nil || string(answer) != want) {
				t.Errorf("%d bytes, chunked %v: %s, %v", size, chunked, answer, err)
			}
			if size > 1000 && resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes, chunked %v: %d %s", size, chunked, resp.StatusCode, answer)
			}
		}
	}
}

// A client that announces 1 GiB gets its answer before it has sent any of it, and the connection ends.
func TestAHugeBodyIsNotRead(t *testing.T) {
	s := httptest.NewServer(bodies(1000))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%+v, %v", resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if _, err := in.ReadByte(); err == nil || Late(err) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// A body that ends too early, or stops, has no answer of its own but a problem.
func TestABrokenBody(t *testing.T) {
	s := httptest.NewUnstartedServer(bodies(1000))
	s.Config.ReadTimeout = 100 * time.Millisecond
	s.Start()
	defer s.Close()
	for name, body := range map[string]string{
		"stops":        "Content-Length: 10\r\n\r\nabc",
		"chunks stop":  "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"no such size": "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
	} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
		_ = c.Close()
	}
}

func TestMediaType(t *testing.T) {
	const want = "application/json"
	for given, ok := range map[string]bool{
		"": true, want: true, want + "; charset=utf-8": true, "Application/JSON": true, "text/plain": false, "application/json/x": false, ";": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if given != "" {
			r.Header.Set("Content-Type", given)
		}
		if problem := CheckMediaType(r, want); (problem == nil) != ok {
			t.Errorf("Content-Type %q: %v", given, problem)
		}
	}
}

// The connection of a client that sends nothing, sends slowly or keeps it idle is closed.
func TestServersHaveLimits(t *testing.T) {
	hs := NewServer(nil)
	for name, d := range map[string]time.Duration{"header": hs.ReadHeaderTimeout, "read": hs.ReadTimeout, "write": hs.WriteTimeout, "idle": hs.IdleTimeout} {
		if d <= 0 || d > 2*time.Minute {
			t.Errorf("%s limit is %s", name, d)
		}
	}
	if hs.MaxHeaderBytes != 16<<10 {
		t.Errorf("headers may hold %d bytes", hs.MaxHeaderBytes)
	}
}
