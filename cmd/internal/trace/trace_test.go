package trace_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/trace"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Some(m)) }

// span is one of an ExportTraceServiceRequest of OTLP.
type span struct{ trace, id, parent, name, link string }

// messages yields the fields of a message of Protocol Buffers that have a length: the schema has no others that this test reads.
func messages(b []byte) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for len(b) > 0 {
			tag, n := binary.Uvarint(b)
			b = b[n:]
			switch tag & 7 {
			case 0:
				_, n = binary.Uvarint(b)
			case 1:
				n = 8
			case 5:
				n = 4
			default:
				size, k := binary.Uvarint(b)
				if b = b[k:]; !yield(tag>>3, b[:size]) {
					return
				}
				n = int(size)
			}
			b = b[n:]
		}
	}
}

// read reads a span.
func read(b []byte) (s span) {
	for field, v := range messages(b) {
		switch field {
		case 1:
			s.trace = hex.EncodeToString(v)
		case 2:
			s.id = hex.EncodeToString(v)
		case 4:
			s.parent = hex.EncodeToString(v)
		case 5:
			s.name = string(v)
		case 13:
			s.link += read(v).id
		}
	}
	return s
}

// receiver is a collector that keeps what it gets.
type receiver struct {
	mu    sync.Mutex
	spans []span
	raw   []byte
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, body...)
	for _, resource := range messages(body) {
		for f, scope := range messages(resource) {
			if f != 2 {
				continue // 3 is a text
			}
			for g, one := range messages(scope) {
				if g == 2 {
					r.spans = append(r.spans, read(one))
				}
			}
		}
	}
}

// of returns the span of a name in a trace.
func (r *receiver) of(trace, name string) (s span, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.spans, func(s span) bool { return s.trace == trace && s.name == name })
	if i < 0 {
		return s, false
	}
	return r.spans[i], true
}

// TestOneClaim: a claim whose caller has sampled it is a request, a command, a step and a batch of the tables in one trace; others are
// not exported, whatever a caller wishes who may not choose it. No span has an id of a customer.
func TestOneClaim(t *testing.T) {
	got := &receiver{}
	at := httptest.NewServer(got)
	t.Cleanup(at.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPProxies = web.Proxies{netip.MustParsePrefix("127.0.0.1/32")} })
	c := r.Campaign(t, map[string]any{"codes": 10})
	r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "unseen"}).Want(t, 201)
	r.Key(t, "producer")
	r.Key(t, "support")
	stranger := func(n string) string { return "00-" + strings.Repeat(n, 16) + "-00f067aa0ba902b7-01" }
	r.Ask(t, "-", "GET", "/v1/campaigns/"+c, nil, "traceparent", stranger("a1")).Want(t, 401)
	r.Ask(t, "nobody", "GET", "/v1/campaigns/"+c, nil, "traceparent", stranger("a2"), "X-Forwarded-For", "203.0.113.7").Want(t, 401)
	r.Ask(t, "-", "GET", "/healthz", nil, "traceparent", stranger("a3"), "X-Forwarded-For", "203.0.113.7")
	r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "bob"}, "traceparent", stranger("a4")).Want(t, 201)
	r.Ask(t, "support", "GET", "/v1/campaigns/"+c, nil, "traceparent", stranger("a5")).Want(t, 200)
	const proxied, asked = "4bf92f3577b34da6a3ce929d0e0e4737", "4bf92f3577b34da6a3ce929d0e0e4738"
	// Reads alone: a step of these would share its batch of the tables with the claim below.
	r.Ask(t, "support", "GET", "/v1/campaigns/"+c, nil, "traceparent", "00-"+proxied+"-00f067aa0ba902b7-01",
		"X-Forwarded-For", "203.0.113.7").Want(t, 200)
	r.Ask(t, "", "GET", "/v1/customers/unseen", nil, "traceparent", "00-"+asked+"-00f067aa0ba902b7-01").Want(t, 200)
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "ann"}, "traceparent", "00-"+id+"-"+parent+"-01").Want(t, 201)

	before := span{id: parent}
	for i, name := range []string{"POST /v1/campaigns/{campaign}/claims", "command claim", "step", "project"} {
		var now span
		apitest.Until(t, "span "+name, func() (ok bool) { now, ok = got.of(id, name); return ok })
		if now.parent != before.id {
			t.Errorf("%s is no child of %s", name, before.name)
		}
		if linked := now.link == before.id; linked != (i > 1) {
			t.Errorf("%s has the links %s", name, now.link)
		}
		before = now
	}
	for _, of := range [][2]string{{proxied, "GET /v1/campaigns/{campaign}"}, {asked, "GET /v1/customers/{customer_id}"}} {
		apitest.Until(t, "the span of "+of[1], func() bool { _, ok := got.of(of[0], of[1]); return ok })
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, s := range got.spans {
		if s.trace != id && s.trace != proxied && s.trace != asked {
			t.Errorf("not sampled, and exported: %v", s)
		}
	}
	if bytes.Contains(got.raw, []byte("unseen")) || bytes.Contains(got.raw, []byte(c+"/")) {
		t.Error("a span has an id of a customer, or the path of a request")
	}
	v := r.Ask(t, "", "POST", "/v1/verifications", map[string]any{}).Want(t, 202).Object(t)
	apitest.Until(t, "tables and log are equal", func() bool {
		return r.Ask(t, "", "GET", "/v1/jobs/"+v["id"].(string), nil).Want(t, 200).Object(t)["state"] == "done"
	})
}

// TestALinkToTheCaller: a request whose caller may not choose is sampled as one without a caller, whatever trace it
// names, and shows that.
func TestALinkToTheCaller(t *testing.T) {
	got := &receiver{}
	at := httptest.NewServer(got)
	t.Cleanup(at.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
	tracer, err := trace.Open(t.Context(), "v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{order}", func(http.ResponseWriter, *http.Request) {})
	h := tracer.Handler(func(r *http.Request) bool { return r.Header.Get("Authorization") != "" }, mux)
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	var wants []span
	for _, c := range []struct{ method, path, key, flag, name string }{
		{"GET", "/orders/1", "", "01", "GET /orders/{order}"}, {"GET", "/orders/2", "", "00", "GET /orders/{order}"}, {"GET", "/orders/3", "key", "01", "GET /orders/{order}"},
		{"GET", "/orders/4", "key", "00", ""}, {"HACK", "/elsewhere", "", "00", "HTTP"},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("traceparent", "00-"+id+"-"+parent+"-"+c.flag)
		if c.key != "" {
			r.Header.Set("Authorization", c.key)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if c.name == "" {
			continue
		}
		want := span{name: c.name, link: parent}
		if c.key != "" {
			want = span{name: c.name, trace: id, parent: parent}
		}
		wants = append(wants, want)
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got.spans) != len(wants) {
		t.Fatalf("%d spans, want %d", len(got.spans), len(wants))
	}
	for i, s := range got.spans {
		s.id = ""
		if want := wants[i]; want.trace == "" && s.trace != id {
			s.trace = ""
		}
		if s != wants[i] {
			t.Errorf("span %+v, want %+v", s, wants[i])
		}
	}
}

// TestOff: without a collector there is no tracer, and its methods cost nothing.
func TestOff(t *testing.T) {
	off, err := trace.Open(t.Context(), "v1", nil)
	if off != nil || err != nil {
		t.Fatal(off, err)
	}
	ctx := context.Background()
	if n := streamtest.Allocations(func() { off.Command(ctx, "claim") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := off.Close(); err != nil {
		t.Error(err)
	}
}
