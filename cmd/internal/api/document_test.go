package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestEveryOperationHasExamples: each body in the document has an example, which its schema allows.
func TestEveryOperationHasExamples(t *testing.T) {
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	api.New(mux, api.Options{})
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	d, err := apitest.ReadDocument(w.Body.Bytes())
	streamtest.Must(t, err)
	d.Examples(t, `add a row to cmd/internal/api/examples.json: "OPERATION": {"request": …, "answer": …, "text": "… of CSV and server-sent events"}`)
}
