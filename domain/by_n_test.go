package domain

import (
	"bytes"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestProducersCannotNameACouponByItsNumber: the number of a coupon can be guessed, so on the subjects of producers n is invalid,
// whoever the header names, also of a command that may be sent there.
func TestProducersCannotNameACouponByItsNumber(t *testing.T) {
	l := testLane()
	s := NewStep(l)
	const setUp = `{"id":"1","type":"create_campaign","campaign":"s","codes":9}` + "\n" + `{"id":"2","type":"claim","campaign":"s","customer_id":"ann"}`
	s.Add(Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: []byte(setUp)}, start, nil)
	for _, line := range []string{
		`{"id":"3","type":"redeem","campaign":"s","n":1,"order_id":"o"}`,
		`{"id":"4","type":"rollback","campaign":"s","n":1,"order_id":"o"}`,
		`{"id":"5","type":"redeem","n":1,"order_id":"o"}`,
	} {
		s.Reset()
		reply := s.Add(Message{Sequence: 2, Scope: wire.ScopeProducer, Campaign: "s", By: "ann", Payload: []byte(line)}, start, nil)
		out, err := wire.ParseOutcome(bytes.TrimSpace(reply))
		if err != nil || out.Refusal != wire.Invalid || out.Message != "n: "+wire.CodeOnly || out.Code != "" {
			t.Errorf("%s is answered %s, %v", line, reply, err)
		}
		if made := typesOf(t, s.Events); made != "rejected" {
			t.Errorf("%s makes %s", line, made)
		}
	}
	s.Reset()
	if reply := s.Add(Message{Sequence: 3, Scope: wire.ScopeOperator, Campaign: "s", Payload: []byte(`{"id":"6","type":"void","n":1}`)}, start, nil); !bytes.Contains(reply, []byte(`"status":"voided"`)) {
		t.Errorf("an operator is answered %s", reply)
	}
}
