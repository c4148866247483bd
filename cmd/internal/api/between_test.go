package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestAClaimInBetweenShowsNoCode: a public key claims for a customer who has a coupon, and at the same time, with the same
// Idempotency-Key, for one who has none. Whichever is first, no answer has the code of the first customer.
func TestAClaimInBetweenShowsNoCode(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "producer+public")
	c := r.Campaign(t, map[string]any{"codes": 100})
	claim := func(as, customer string, header ...string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": customer}, header...)
	}
	code := claim("", "ann").Want(t, 201).Object(t)["code"].(string)
	for i := range 20 {
		var both sync.WaitGroup
		for _, customer := range []string{"ann", fmt.Sprint("new", i)} {
			both.Go(func() {
				if got := claim("producer+public", customer, "Idempotency-Key", fmt.Sprint("cart ", i)); strings.Contains(string(got.Body), code) {
					t.Errorf("claim %d of %s: %s", i, customer, got.Body)
				}
			})
		}
		both.Wait()
	}
}
