package apitest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const sample = `{"openapi": "3.1.0",
	"components": {"schemas": {
		"Thing": {"type": "object", "required": ["id"], "additionalProperties": true, "properties": {"id": {"type": "string"}, "at": {"type": "string", "format": "date-time"}}},
		"Problem": {"type": "object", "required": ["code"], "properties": {"code": {"type": "string"}}}}},
	"paths": {"/v1/things/{id}": {"put": {"operationId": "putThing",
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
		"responses": {
			"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}, "application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
			"default": {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}}}}}}`

// verdict is a testing.TB that notes whether the test would have failed.
type verdict struct {
	testing.TB
	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }

// TestCheck: what the document does not have fails the test that asked.
func TestCheck(t *testing.T) {
	const json, lines = "application/json", "application/x-ndjson"
	for what, c := range map[string]struct {
		path, sent string
		status     int
		media, got string
		fails      bool
	}{
		"an answer":               {"/v1/things/a", `{"id":"a"}`, 200, json, `{"id":"a","at":"2026-01-01T00:00:00Z"}`, false},
		"of another type":         {"/v1/things/a", "", 200, json, `{"id":7}`, true},
		"of another form":         {"/v1/things/a", "", 200, json, `{"id":"a","at":"noon"}`, true},
		"without a field":         {"/v1/things/a", "", 200, json, `{}`, true},
		"with one more":           {"/v1/things/a", "", 200, json, `{"id":"a","name":"b"}`, true},
		"no JSON":                 {"/v1/things/a", "", 200, json, `a`, true},
		"another status":          {"/v1/things/a", "", 201, json, `{"id":"a"}`, true},
		"another media type":      {"/v1/things/a", "", 200, "text/plain", `a`, true},
		"lines":                   {"/v1/things/a", "", 200, lines, "{\"id\":\"a\"}\n\n{\"id\":\"b\"}\n", false},
		"a bad line":              {"/v1/things/a", "", 200, lines, "{\"id\":\"a\"}\n{}\n", true},
		"a bad request, accepted": {"/v1/things/a", `{}`, 200, json, `{"id":"a"}`, true},
		"a problem":               {"/v1/things/a", `{}`, 422, problemType, `{"code":"invalid"}`, false},
		"a problem without code":  {"/v1/things/a", `{}`, 422, problemType, `{}`, true},
		"no route":                {"/v1/none", "", 404, problemType, `{"code":"not_found"}`, false},
		"no route, no problem":    {"/v1/none", "", 404, problemType, `404 page not found`, true},
	} {
		d, err := ReadDocument([]byte(sample))
		streamtest.Must(t, err)
		req, err := http.NewRequest(http.MethodPut, "http://localhost"+c.path, strings.NewReader(c.sent))
		streamtest.Must(t, err)
		req.Header.Set("Content-Type", json)
		v := &verdict{}
		d.Check(v, req, []byte(c.sent), &Response{c.status, http.Header{"Content-Type": {c.media}}, []byte(c.got), what})
		if v.failed != c.fails {
			t.Errorf("%s: fails %v, want %v", what, v.failed, c.fails)
		}
		if asked := c.status < 300 && c.path != "/v1/none"; asked == (len(d.Unanswered()) == 1) && c.status != 201 {
			t.Errorf("%s: without an answer are %v", what, d.Unanswered())
		}
	}
	if _, err := ReadDocument([]byte(`{"openapi":"3.0.3"}`)); err == nil {
		t.Error("a document whose schemas are no JSON Schema is read")
	}
}
