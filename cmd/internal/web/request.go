package web

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// wellFormed calls next for requests whose path and query mean one thing. Package json would read U+FFFD for what is no UTF-8,
// and two customers would be one; package http leaves out parameters that it cannot read, and redirects paths such as //v1. next
// finds the media type of a body in lower case and without parameters.
func wellFormed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem := nameRequest(w.Header(), r)
		if problem == nil {
			problem = misformed(r.URL)
		}
		if problem != nil {
			problem.Write(w)
			return
		}
		if given := r.Header["Content-Type"]; len(given) == 1 && !strings.HasPrefix(given[0], "multipart/") { // a file needs its boundary
			kind, _, _ := strings.Cut(given[0], ";")
			given[0] = strings.ToLower(strings.TrimSpace(kind))
		}
		next.ServeHTTP(w, r)
	})
}

// RequestID is the header that names a request in its answer, in logs and in the events that it caused, in canonical form.
const RequestID = "X-Request-Id"

// nameRequest gives the answer the request id that the client has sent. Without one routes of commands answer with that of their
// command, and all else gets a new one.
func nameRequest(answer http.Header, r *http.Request) *Problem {
	given := r.Header[RequestID]
	switch {
	case given == nil:
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			EnsureRequestID(answer)
		}
		return nil
	case len(given) != 1 || given[0] == "" || len(given[0]) > wire.MaxRequestID || strings.ContainsFunc(given[0], func(c rune) bool { return c < ' ' || c > '~' }):
		const must = "must be given once, with 1 to 64 printable ASCII characters, or not at all"
		return New(Malformed, RequestID+" "+must).At("header."+RequestID, must)
	}
	answer[RequestID] = given
	return nil
}

// EnsureRequestID returns the request id of an answer, which gets a new one if it has none.
func EnsureRequestID(answer http.Header) string {
	if answer[RequestID] == nil {
		answer[RequestID] = []string{rand.Text()}
	}
	return answer[RequestID][0]
}

func misformed(u *url.URL) *Problem {
	const noUTF8 = "must be UTF-8"
	escaped := u.EscapedPath()
	if clean := path.Clean(escaped); clean != escaped && clean+"/" != escaped {
		return New(NotFound, "there is no route "+escaped+"; GET /v1/openapi.json lists them")
	}
	if !utf8.ValidString(u.Path) {
		return New(Malformed, "the path "+noUTF8).At("path", noUTF8)
	}
	if u.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return New(Malformed, "the query cannot be read: "+err.Error()).At("query", err.Error())
	}
	for name, values := range query {
		for _, text := range append(values, name) {
			if !utf8.ValidString(text) {
				return New(Malformed, "the query "+noUTF8).At("query."+name, noUTF8)
			}
		}
	}
	return nil
}

// textHead follows the first line of an answer that package http gives by itself, before there is a request for a handler.
var textHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write writes a part of an answer. What package http answers by itself gets the form of all errors.
func (c *conn) Write(b []byte) (int, error) {
	if len(b) < 12 || string(b[:9]) != "HTTP/1.1 " || b[9] < '4' {
		return c.Conn.Write(b)
	}
	line, text, own := bytes.Cut(b, textHead)
	status, err := strconv.Atoi(string(b[9:12]))
	if !own || err != nil || bytes.IndexByte(line, '\r') >= 0 {
		return c.Conn.Write(b)
	}
	p := New(Malformed, string(text))
	p.Status, p.Title = status, http.StatusText(status)
	body := p.body()
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, p.Title, ProblemType, len(body), body)
	return len(b), err
}
