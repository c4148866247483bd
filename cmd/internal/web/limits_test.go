package web

import (
	"fmt"
	"io"
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

// A client whose request stops, comes too slowly, or has no valid form gets an answer with the reason, or none while its headers
// arrive. Others are served.
func TestBadClients(t *testing.T) {
	slowly := make([]string, 100)
	for i := range slowly {
		slowly[i] = "x"
	}
	const post = "POST / HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		parts  []string
		status int // 0 = the connection ends without an answer
		after  time.Duration
	}{
		"a header that stops":          {[]string{post}, 0, HeaderWait},
		"a header, a byte at a time":   {append([]string{post + "X: "}, slowly...), 0, HeaderWait},
		"a body that stops":            {[]string{post + "Content-Length: 10\r\n\r\nabc"}, http.StatusRequestTimeout, ReadWait},
		"a body, a byte at a time":     {append([]string{post + "Content-Length: 100\r\n\r\n"}, slowly...), http.StatusRequestTimeout, ReadWait},
		"chunks that stop":             {[]string{post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}, http.StatusRequestTimeout, ReadWait},
		"bad chunks":                   {[]string{post + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"}, http.StatusBadRequest, 0},
		"two lengths":                  {[]string{post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"}, http.StatusBadRequest, 0},
		"a gibibyte that is not sent":  {[]string{post + "Content-Length: 1073741824\r\n\r\n"}, http.StatusRequestEntityTooLarge, 0},
		"long headers":                 {[]string{post + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"}, http.StatusRequestHeaderFieldsTooLarge, 0},
		"a transfer coding of its own": {[]string{post + "Transfer-Encoding: x\r\n\r\n"}, http.StatusNotImplemented, 0},
		"no host":                      {[]string{"GET / HTTP/1.1\r\n\r\n"}, http.StatusBadRequest, 0},
		"no request":                   {[]string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"}, http.StatusBadRequest, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 10, bodies(1000), func(t *testing.T, net *pipes) {
				started, conn := time.Now(), net.dial()
				defer conn.Close()
				got := talk(conn, func() { time.Sleep(500 * time.Millisecond) }, c.parts...)
				switch took := time.Since(started); {
				case c.status == 0 && got != nil, c.status > 0 && (got == nil || got.StatusCode != c.status || !got.Close):
					t.Errorf("answered %+v, want %d", got, c.status)
				case got != nil && got.Header.Get("Content-Type") != ProblemType:
					t.Errorf("the answer has the form %s", got.Header.Get("Content-Type"))
				case took.Truncate(time.Second) != c.after:
					t.Errorf("it ended after %s, want %s", took, c.after)
				}
				other := net.dial()
				defer other.Close()
				if got := talk(other, func() {}, post+"Content-Length: 3\r\n\r\nabc"); got == nil || got.StatusCode != 200 {
					t.Errorf("another client got %+v", got)
				}
			})
		})
	}
}

func TestMediaType(t *testing.T) {
	const want = "application/json"
	for given, ok := range map[string]bool{
		"": true, want: true, want + "; charset=utf-8": true, "Application/JSON": true,
		"APPLICATION/JSON; Charset=UTF-8": true, "application/json ;charset=utf-8": true, "Text/Plain": false, "text/plain": false, "application/json/x": false, ";": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if given != "" {
			r.Header.Set("Content-Type", given)
		}
		var problem *Problem
		NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { problem = CheckMediaType(r, want) })).Handler.ServeHTTP(httptest.NewRecorder(), r)
		if (problem == nil) != ok {
			t.Errorf("Content-Type %q: %v", given, problem)
		}
	}
}

// A stream goes on for longer than the limits of ordinary requests, in both directions; a request that is none is cut off, and
// so is a stream whose client takes nothing.
func TestStreamsOutliveTheLimits(t *testing.T) {
	const limit = time.Minute // longer than those of ordinary requests
	var cut chan error        // of the bubble
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down":
			for s := NewStream(w); ; {
				time.Sleep(limit)
				s.Writing(limit)
				if _, err := io.WriteString(w, "part\n"); err != nil || s.Flush() != nil {
					return
				}
			}
		case "/up":
			s := NewStream(w)
			body, err := io.ReadAll(s.Body(r.Body))
			s.Writing(limit)
			fmt.Fprintf(w, "%d %t", len(body), Late(err))
		case "/plain":
			time.Sleep(limit)
			_, _ = io.WriteString(w, "too late")
		case "/stuck":
			s := NewStream(w)
			for part := make([]byte, 1<<20); ; {
				s.Writing(limit)
				if _, err := w.Write(part); err != nil {
					cut <- err
					return
				}
			}
		}
	})
	inMemory(t, 10, h, func(t *testing.T, net *pipes) {
		cut = make(chan error, 1)
		const head = " HTTP/1.1\r\nHost: x\r\n"
		down := net.dial()
		defer down.Close()
		got := talk(down, func() {}, "GET /down"+head+"\r\n")
		parts := make([]byte, len("part\n")*3)
		if _, err := io.ReadFull(got.Body, parts); err != nil || string(parts) != strings.Repeat("part\n", 3) {
			t.Errorf("a stream to the client is %q, %v", parts, err)
		}
		part := strings.Repeat("x", BodyPart)
		for what, c := range map[string]struct {
			pause time.Duration
			parts []string
			want  string
			took  time.Duration
		}{
			"as slow as it may be": {BodyWait - time.Second, []string{part, part, part}, fmt.Sprintf("%d false", 3*BodyPart), 2 * (BodyWait - time.Second)},
			"silent":               {0, []string{""}, "0 true", BodyWait},
			"too slow":             {BodyWait/3 + time.Second, strings.Split(strings.Repeat("x", 100), ""), "3 true", BodyWait},
			"silent after a part":  {2 * BodyWait, []string{part, "x"}, fmt.Sprintf("%d true", BodyPart), BodyWait},
		} {
			up, started := net.dial(), time.Now()
			c.parts[0] = fmt.Sprintf("POST /up%sContent-Length: %d\r\n\r\n", head, 3*BodyPart) + c.parts[0]
			got := talk(up, func() { time.Sleep(c.pause) }, c.parts...)
			body, err := io.ReadAll(got.Body)
			if took := time.Since(started); string(body) != c.want || err != nil || took < c.took || took > 2*c.took+time.Second {
				t.Errorf("a client that is %s: %q, %v, after %s", what, body, err, took)
			}
			up.Close()
		}
		plain := net.dial()
		defer plain.Close()
		if got := talk(plain, func() {}, "GET /plain"+head+"\r\n"); got != nil {
			t.Errorf("a request that is no stream is not cut off: %+v", got)
		}
		stuck := net.dial()
		defer stuck.Close()
		if got := talk(stuck, func() {}, "GET /stuck"+head+"\r\n"); got == nil {
			t.Error("a stream has no answer")
		}
		if err := <-cut; !Late(err) {
			t.Errorf("a stream whose client takes nothing ends with %v", err)
		}
	})
}

// A client that holds all it may leaves the rest to others; what is refused is counted by the limit that was reached.
func TestQuota(t *testing.T) {
	q := NewQuota[string]("exports", "key", 4, 2)
	for i, c := range []struct {
		client string
		exempt bool
		over   string
	}{{"slow", false, ""}, {"slow", false, ""}, {"slow", false, "exports_per_key"}, {"", true, ""}, {"", true, ""}, {"", true, "exports"}, {"other", false, "exports"}} {
		over := q.Take(c.client, c.exempt)
		if (over == nil) != (c.over == "") || over != nil && over.What != c.over {
			t.Errorf("%d: %+v, want %q", i, over, c.over)
		}
	}
	q.Release("slow")
	if over := q.Take("other", false); over != nil {
		t.Errorf("what was released is not free: %+v", over)
	}
	if l := q.Limits(); l[0].Used != 4 || l[0].Refused != 2 || l[1].Used != 2 || l[1].Refused != 1 {
		t.Errorf("%+v", l)
	}
}
