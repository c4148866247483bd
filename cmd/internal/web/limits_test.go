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
	s.Config.ReadTimeout, s.Config.ReadHeaderTimeout = 100*time.Millisecond, time.Minute // the body is late, never the header
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

// A stream goes on for longer than the limits of ordinary requests, in both directions; a request that is none is cut off, and
// so is a stream whose client takes nothing.
func TestStreamsOutliveTheLimits(t *testing.T) {
	const limit = 200 * time.Millisecond
	cut := make(chan error, 1)
	hs := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send := func(s Stream) error {
			for range 3 {
				time.Sleep(limit) // each part takes as long as a whole request may
				s.Writing(time.Minute)
				if _, err := io.WriteString(w, "part\n"); err != nil {
					return err
				}
				if err := s.Flush(); err != nil {
					return err
				}
			}
			return nil
		}
		switch r.URL.Path {
		case "/down":
			_ = send(NewStream(w))
		case "/up":
			s := NewStream(w)
			s.Reading(time.Minute)
			body, err := io.ReadAll(r.Body)
			s.Writing(time.Minute)
			fmt.Fprintf(w, "%d %v", len(body), err)
		case "/plain":
			time.Sleep(2 * limit)
			_, _ = io.WriteString(w, "too late")
		case "/stuck":
			s := NewStream(w)
			part := make([]byte, 1<<20)
			for {
				s.Writing(limit)
				if _, err := w.Write(part); err != nil {
					cut <- err
					return
				}
			}
		}
	}))
	hs.ReadTimeout, hs.WriteTimeout = limit, limit
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = hs.Serve(l) }()
	defer hs.Close()
	url := "http://" + l.Addr().String()
	read := func(resp *http.Response, err error) (string, error) {
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if body, err := read(http.Get(url + "/down")); body != strings.Repeat("part\n", 3) || err != nil {
		t.Errorf("a stream to the client is %q, %v", body, err)
	}
	slow, feed := io.Pipe()
	go func() {
		for range 3 {
			time.Sleep(limit)
			_, _ = io.WriteString(feed, "part\n")
		}
		_ = feed.Close()
	}()
	if body, err := read(http.Post(url+"/up", "text/plain", slow)); body != "15 <nil>" || err != nil {
		t.Errorf("a stream from the client is %q, %v", body, err)
	}
	if body, err := read(http.Get(url + "/plain")); err == nil {
		t.Errorf("a request that is no stream is not cut off: %q", body)
	}
	stuck, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if _, err := io.WriteString(stuck, "GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cut:
		if !Late(err) {
			t.Errorf("the stream ends with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a stream whose client takes nothing is not cut off")
	}
}
