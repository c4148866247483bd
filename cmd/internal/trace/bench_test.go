package trace

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkRequest is what a request and its command cost beside what they do: without traces, and with those of a request in a hundred,
// exported. A claim over HTTP costs the server 60 µs.
func BenchmarkRequest(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	for _, endpoint := range []string{"", collector.URL} {
		name := "off"
		if endpoint != "" {
			name = "1 of 100"
		}
		b.Run(name, func(b *testing.B) {
			b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t, err := Open(b.Context(), "test", slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer t.Close()
			h := t.Handler(func(*http.Request) bool { return false }, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, end := t.Command(r.Context(), "claim"); end != nil {
					end(nil)
				}
			}))
			r, w := httptest.NewRequest(http.MethodPost, "/v1/campaigns/spring/claim", nil), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
