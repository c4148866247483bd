package console

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// answer is what /v1 answered.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header, WriteHeader and Write make it an http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// problem returns the problem that it is, nil = it is none.
func (a *answer) problem() *web.Problem {
	if a.status < 400 {
		return nil
	}
	p := &web.Problem{}
	if err := json.Unmarshal(a.body.Bytes(), p); err != nil || p.Code == "" {
		p = web.New(web.Internal, "the server answered "+http.StatusText(a.status))
	}
	return p
}

// request makes a request to /v1 by a principal. from is the browser's, whose address and request id it has.
func request(from *http.Request, p access.Principal, method, path string, body io.Reader) *http.Request {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path} // answered with 404
	}
	r := &http.Request{Method: method, URL: u, RequestURI: path, Header: http.Header{}, Host: "console", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Body: http.NoBody}
	ctx := context.Background()
	if from != nil {
		ctx, r.RemoteAddr, r.Host = from.Context(), from.RemoteAddr, from.Host
	}
	switch of := body.(type) {
	case nil:
		r.ContentLength = 0
	case *bytes.Reader:
		r.ContentLength, r.Body = int64(of.Len()), io.NopCloser(of)
	default:
		r.Body = io.NopCloser(of)
	}
	return r.WithContext(web.As(ctx, p))
}

// call sends a request to /v1 and returns the answer.
func (c *Console) call(r *http.Request) *answer {
	a := &answer{header: http.Header{}}
	c.V1.ServeHTTP(a, r)
	return a
}

// Part is a part of a page: what one request to /v1 was answered with. While one part fails the others are shown.
type Part[T any] struct {
	Data T
	// Problem is why there is no Data.
	Problem *web.Problem
	// Path is that of the request.
	Path string
	// Version is its ETag, for If-Match of a change.
	Version string
}

// get reads a part of a page. The names and values of the query follow the path; those without a value are left out.
func get[T any](v *view, path string, query ...string) (p Part[T]) {
	values := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			values.Set(query[i], query[i+1])
		}
	}
	p.Path = path
	if len(values) > 0 {
		p.Path += "?" + values.Encode()
	}
	return read[T](v, p.Path, request(v.r, v.Who, http.MethodGet, p.Path, nil))
}

// search is get by POST, for what must not be in URLs, and changes nothing.
func search[T any](v *view, path string, body any) (p Part[T]) {
	raw, err := json.Marshal(body)
	if err != nil {
		p.Problem = web.New(web.Internal, err.Error())
		return p
	}
	r := request(v.r, v.Who, http.MethodPost, path, bytes.NewReader(raw))
	r.Header.Set("Content-Type", "application/json")
	return read[T](v, path, r)
}

func read[T any](v *view, path string, r *http.Request) (p Part[T]) {
	p.Path = path
	a := v.c.call(r)
	if p.Problem = a.problem(); p.Problem == nil {
		p.Version = strings.Trim(a.header.Get("ETag"), `"`)
		if err := json.Unmarshal(a.body.Bytes(), &p.Data); err != nil {
			p.Problem = web.New(web.Internal, "the answer to "+path+" cannot be read: "+err.Error())
		}
	}
	return p
}

// escape is a part of a path.
func escape(s string) string { return url.PathEscape(s) }
