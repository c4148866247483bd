package examples

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// every is how often an answer is lost: each third one.
const every = 3

// loseHTTP starts a proxy in front of an HTTP server. It reads each answer to its end, and closes the connection instead of
// passing on every third one. lost counts those.
func loseHTTP(t *testing.T, target string) (address string, lost func() int64) {
	t.Helper()
	var answers, gone atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "http", target, target, ""
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			t.Errorf("the server does not answer: %v", err)
			panic(http.ErrAbortHandler)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.Body.Close() != nil {
			t.Errorf("reading an answer: %v", err)
		}
		if answers.Add(1)%every == 0 {
			gone.Add(1)
			panic(http.ErrAbortHandler) // closes the connection
		}
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body) // the client may be gone
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String(), gone.Load
}

// loseNATS starts a relay in front of a NATS server, which leaves out every third message to an inbox. lost counts those.
func loseNATS(t *testing.T, target string) (address string, lost func() int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var answers, gone atomic.Int64
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, client)
					_ = server.Close() // the client has ended
				}()
				for in := bufio.NewReader(server); ; {
					message, inbox, err := next(in)
					if err != nil {
						return
					}
					if inbox && answers.Add(1)%every == 0 {
						gone.Add(1)
						continue
					}
					if _, err := client.Write(message); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String(), gone.Load
}

// next reads one protocol line of a NATS server, with the message that follows it, if any. inbox: it is one to an inbox.
func next(in *bufio.Reader) (message []byte, inbox bool, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, false, err
	}
	words := strings.Fields(string(line))
	if len(words) < 4 || words[0] != "MSG" && words[0] != "HMSG" {
		return line, false, nil
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return nil, false, err
	}
	message = append(line, make([]byte, size+len("\r\n"))...)
	_, err = io.ReadFull(in, message[len(line):])
	return message, strings.HasPrefix(words[1], "_INBOX"), err
}
