package service

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// A request of several lines is answered in their order, each line for itself: with its outcome, refused as not valid, refused as
// what its key may not do or has no rate for. One object with line breaks is one request.
func TestSeveralLines(t *testing.T) {
	r := newRig(t)
	counted := 0
	_, keys := managed(t, r, func(o *Options) {
		o.Rate = func(access.Principal) (wait time.Duration) {
			if counted++; counted > 6 {
				wait = time.Second
			}
			return wait
		}
	})
	for lane := range lanes {
		r.lane(t, lane, func(q query) string { return fmt.Sprintf(`{"id":%q,"status":"valid","n":7}`, q.ID) })
	}
	ask := func(subject string, body string, as ...string) (got []string) {
		t.Helper()
		reply := r.request(t, subject, body, as...)
		if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
			return []string{code}
		}
		for line := range bytes.SplitSeq(bytes.TrimSuffix(reply.Data, []byte{'\n'}), []byte{'\n'}) {
			out, err := wire.ParseOutcome(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got = append(got, strings.TrimSuffix(out.ID+" "+out.Status+" "+string(out.Refusal), " "))
		}
		return got
	}
	is := func(got []string, want ...string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	code := r.generated(4, 7)
	is(ask("scrip.redeem", `{"id":"a","code":"`+code+`","order_id":"o"}
not JSON

{"id":"b","code":"none","order_id":"o"}
{"id":"c","colour":"red"}
`), "a redeemed", " refused invalid", "b refused code_not_found", "c refused invalid")
	is(ask("scrip.claim.summer", `{"id":"d","customer_id":"x"}`+"\n"+`{"id":"e","customer_id":"y","campaign":"winter"}`), "d claimed", "e refused invalid")
	is(ask("scrip.coupon.validate", `{"id":"f","code":"`+code+`"}`+"\n"+`{"id":"g","campaign":"summer","n":1}`), "f valid", "g valid")
	is(ask("scrip.claim.summer", "{\n\"id\":\"h\",\n\"customer_id\":\"z\"}"), "h claimed")

	key := r.key(t, keys, `{"name":"shop","role":"producer","campaigns":["summer"]}`)
	as := info(access.AccountCounter, key.ID)
	redeem := func(id, campaign string) string {
		return `{"id":"` + id + `","code":"` + code + `","order_id":"o","campaign":"` + campaign + `"}` + "\n"
	}
	is(ask("scrip.redeem", redeem("i", "summer")+redeem("j", "winter")+redeem("k", "summer")+`{"id":"l","campaign":"summer","n":1,"order_id":"o"}`+"\n"+redeem("m", "winter"), as...),
		"i redeemed", "j refused forbidden", "k redeemed", "l refused forbidden", "m refused forbidden")
	is(ask("scrip.redeem", redeem("n", "summer")+redeem("o", "summer")+redeem("p", "summer"), as...), "n redeemed", "o refused rate_limited", "p refused rate_limited")

	is(ask("scrip.redeem", strings.Repeat(redeem("x", "summer"), 1001)), " refused invalid")
	long := redeem(strings.Repeat("x", 60), "summer")
	is(ask("scrip.redeem", strings.Repeat(long, 1+wire.MaxMessage/len(long))), " refused invalid")
}
