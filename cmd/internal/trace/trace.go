// Package trace exports OpenTelemetry traces of requests, by OTLP over HTTP.
//
//	HTTP POST … ──> command claim ── Scrip-Trace on the command message ──> step lane 2 ── Trace-Step on the event message ──> project
//	server span     child: until its outcome                                links to its sampled lines                         links to its steps
//
// It is off unless the standard variables name a collector; the SDK reads them: OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, headers, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_SDK_DISABLED. Unless they
// choose another sampler, a request in a hundred is sampled, and each whose caller has sampled it, if it is one who may
// choose that.
//
// streams and projections know texts alone, the traceparent of a span, and functions that make one.
//
// Owner: the server. Its methods are used by all goroutines; those of a nil Tracer do nothing.
//
// What a crash does: the spans of the last seconds are lost.
package trace

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// sampled is the part of requests that are sampled, unless the variables choose another sampler.
	sampled = 0.01
	// complainEvery is the least time between two lines of the log about a collector that is away.
	complainEvery = time.Minute
	// flushWait is how long the last spans may take when the server stops.
	flushWait = 2 * time.Second
)

// Tracer makes spans.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

var parents = propagation.TraceContext{}

// Open returns a Tracer if the variables name a collector, else nil.
func Open(ctx context.Context, version string, log *slog.Logger) (*Tracer, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "scrip"), attribute.String("service.version", version)), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return nil, err
	}
	options := []sdk.TracerProviderOption{sdk.WithBatcher(exporter), sdk.WithResource(of)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(sampled))))
	}
	var complained atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if last, now := complained.Load(), time.Now().UnixNano(); now-last > int64(complainEvery) && complained.CompareAndSwap(last, now) {
			log.Warn("traces are not exported; nothing else is affected", "err", err)
		}
	}))
	p := sdk.NewTracerProvider(options...)
	return &Tracer{p, p.Tracer("scrip")}, nil
}

// Close exports the last spans.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Handler makes a span of each request. Its parent is the span in the header traceparent, with the choice of that
// whether it is sampled, if trusts allows it; else the span starts a trace, with a link to the other, so that no
// stranger chooses what is exported. The span names the route: a path has ids of customers and orders.
func (t *Tracer) Handler(trusts func(*http.Request) bool, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, options := r.Context(), []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
		caller := trace.SpanContextFromContext(parents.Extract(ctx, propagation.HeaderCarrier(r.Header)))
		switch {
		case !caller.IsValid():
		case trusts(r):
			ctx = trace.ContextWithRemoteSpanContext(ctx, caller)
		default:
			options = append(options, trace.WithLinks(trace.Link{SpanContext: caller.WithTraceState(trace.TraceState{})}))
		}
		ctx, span := t.tracer.Start(ctx, "HTTP", options...)
		defer span.End()
		r = r.WithContext(ctx)
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		s := &status{ResponseWriter: w}
		next.ServeHTTP(s, r)
		if route := r.Pattern; route != "" { // the last mux has set it
			if _, path, found := strings.Cut(route, " "); found {
				route = path
			}
			span.SetName(method(r.Method) + " " + route)
			span.SetAttributes(attribute.String("http.route", route))
		}
		span.SetAttributes(attribute.String("http.request.method", method(r.Method)), attribute.Int("http.response.status_code", s.code))
		if s.code >= 500 {
			span.SetStatus(codes.Error, http.StatusText(s.code))
		}
	})
}

// method is a method that routes have, else the name that OpenTelemetry gives all others.
func method(given string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}, given) {
		return given
	}
	return "_OTHER"
}

// status remembers the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Write and Unwrap are those of the answer.
func (s *status) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return s.ResponseWriter.Write(b)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Command makes the span of a command, a child of that of the request. parent is "" if it is not sampled.
func (t *Tracer) Command(ctx context.Context, name string) (parent string, end func(error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return "", nil
	}
	ctx, span := t.tracer.Start(ctx, "command "+name, trace.WithSpanKind(trace.SpanKindProducer))
	return text(ctx), func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Step makes the span of a step of a lane, which has sampled lines. It starts when the first of them was decided.
func (t *Tracer) Step(lane int, lines []string, began time.Time) (parent string, end func(sequence uint64, commands int)) {
	ctx, span := t.linked("step", lane, lines, trace.WithTimestamp(began))
	return text(ctx), func(sequence uint64, commands int) {
		span.SetAttributes(attribute.Int64("scrip.sequence", int64(sequence)), attribute.Int("scrip.commands", commands)) //nolint:gosec // a count
		span.End()
	}
}

// Project makes the span of a batch of the read tables, which has sampled steps.
func (t *Tracer) Project(lane int, steps []string) (end func(error)) {
	_, span := t.linked("project", lane, steps)
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// linked makes a span with links. It is in the trace of the first of them, so that one trace shows the whole way of a request.
func (t *Tracer) linked(name string, lane int, to []string, more ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx := context.Background()
	var links []trace.Link
	for i, parent := range to {
		of := trace.SpanContextFromContext(parents.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent}))
		if !of.IsValid() {
			continue
		}
		if i == 0 {
			ctx = trace.ContextWithRemoteSpanContext(ctx, of)
		}
		links = append(links, trace.Link{SpanContext: of})
	}
	return t.tracer.Start(ctx, name, append(more, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(attribute.Int("scrip.lane", lane)))...)
}

// text is the traceparent of a context's span.
func text(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	parents.Inject(ctx, carrier)
	return carrier["traceparent"]
}
