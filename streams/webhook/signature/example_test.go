package signature_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// A receiver verifies each request before it reads it, and keeps the ids: an event may be delivered more than once.
func ExampleVerify() {
	secret, err := signature.Parse("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=") // as scrip webhook create printed it
	if err != nil {
		fmt.Println(err)
		return
	}
	done := map[string]bool{} // a table of your database, written in the transaction of what the event causes
	receive := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<10))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		id, err := signature.Verify(r.Header, body, time.Now(), 5*time.Minute, secret)
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !done[id] {
			fmt.Printf("%s: %s\n", id, body)
		}
		done[id] = true
		w.WriteHeader(http.StatusNoContent)
	}

	// What a server of scrip sends, twice, and what a stranger sends.
	body := `{"type":"coupon.redeemed","timestamp":"2026-11-27T00:00:00Z","data":{"campaign":"summer","n":7}}`
	deliver := func(with signature.Secret) {
		request := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
		signature.Set(request.Header, "evt_7", time.Now(), []byte(body), with)
		answer := httptest.NewRecorder()
		receive(answer, request)
		fmt.Println(answer.Code)
	}
	deliver(secret)
	deliver(secret)
	deliver(signature.NewSecret())

	// Output:
	// evt_7: {"type":"coupon.redeemed","timestamp":"2026-11-27T00:00:00Z","data":{"campaign":"summer","n":7}}
	// 204
	// 204
	// 401
}
