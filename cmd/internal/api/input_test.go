package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTextThatIsNone: in each path and query parameter of each route, bytes that are no UTF-8 are 400, and U+0000, which PostgreSQL
// does not take, is an error of the client: 503 would make it retry for ever.
func TestTextThatIsNone(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 1})
	fill := func(path, name, value string) string {
		return places(strings.ReplaceAll(path, "{"+name+"}", value), c)
	}
	api, tried := api.New(http.NewServeMux(), api.Options{}), 0
	for path, item := range api.Document().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "DELETE": item.Delete, "PATCH": item.Patch} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				for text, refused := range map[string]bool{"x%ff": true, "x%00y": false} {
					target := fill(path, p.Name, text)
					switch p.In {
					case "query":
						target += "?" + p.Name + "=" + text
					case "path":
					default:
						continue
					}
					var body any
					if op.RequestBody != nil {
						body = map[string]any{}
					}
					tried++
					got := r.Ask(t, "", method, target, body)
					if got.Status >= 500 || refused && got.Status != 400 {
						t.Errorf("%s: %d %s", got.What, got.Status, got.Body)
					}
				}
			}
		}
	}
	if tried < 60 {
		t.Errorf("%d requests", tried)
	}
	for query, status := range map[string]int{
		"coupons?customer_id=%00": 422, "coupons?order_id=a%00b": 422, "coupons?customer_id=%E2%80%8B": 422, "coupons?campaign=%00": 422,
		"dead-letters?stream=%00": 422, "dead-letters?stream=SCRIP_CMD_%00": 422, "dead-letters?stream=SCRIP_CMD_0": 200,
		"customers/a%00b": 422,
	} {
		if got := r.Ask(t, "", "GET", "/v1/"+query, nil); got.Status != status {
			t.Errorf("%s: %d %s, want %d", query, got.Status, got.Body, status)
		}
	}
	for body, status := range map[string]int{
		`{"customer_id":"a\u0000"}`: 422, `{"order_id":"\u0000"}`: 422, `{"code":"\u0000"}`: 422, "{\"customer_id\":\"x\xff\"}": 400, `{"customer_id":"none"}`: 200,
	} {
		r.Ask(t, "", "POST", "/v1/coupons/search", body).Want(t, status)
	}
}

// TestIdempotencyKeyHeader: one that is empty or given twice is refused.
func TestIdempotencyKeyHeader(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 100})
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		for what, keys := range map[string][]string{"empty": {""}, "two": {"a", "b"}, "two equal ones": {"a", "a"}} {
			req := r.Request(t, "", route.Method, places(route.Path, c), nil)
			req.Header["Idempotency-Key"] = keys
			resp, err := http.DefaultClient.Do(req)
			streamtest.Must(t, err)
			if _ = resp.Body.Close(); resp.StatusCode != 400 {
				t.Errorf("%s %s, %s: %d", route.Method, route.Path, what, resp.StatusCode)
			}
		}
	}
}
