package crash

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// reply is an answer over HTTP; a Status of 0 = there was none.
type reply struct {
	Status   int    `json:"-"`
	Replayed string `json:"-"`
	Code     string `json:"code"`
	Secret   string `json:"secret"`
	Effect   string `json:"effect"`
}

// post sends a request to a server, with a key or else with the server's credentials.
func post(s *e2e.Server, key, path, idempotency string, body any) (got reply, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return got, err
	}
	req, err := http.NewRequest(http.MethodPost, s.Desc.HTTPURL+path, bytes.NewReader(raw))
	if err != nil {
		return got, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.URL.User = nil
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if idempotency != "" {
		req.Header.Set("Idempotency-Key", idempotency)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	got.Status, got.Replayed = resp.StatusCode, resp.Header.Get("Idempotency-Replayed")
	return got, err
}

// TestKilledBetweenEffectAndAnswer: the server that took a claim over HTTP has sent it to its lane, which decided it, and is killed
// before it has the outcome. The client sends the same Idempotency-Key again, and gets the coupon that it has.
func TestKilledBetweenEffectAndAnswer(t *testing.T) {
	t.Parallel()
	srv := streamtest.Start(t, streamtest.SyncAlways)
	deciding := e2e.NewMember(t, "--nats", srv.ClientURL(), "--lanes", "2", "--roles", "lanes,scheduler,api")
	deciding.Up()
	link := streamtest.NewLink(t, strings.TrimPrefix(srv.ClientURL(), "nats://"))
	answering := e2e.NewMember(t, "--nats", "nats://"+link.Addr(), "--roles", "api")
	answering.Up()
	// With 10 for each customer a claim that is not recognized makes a second coupon.
	if got, err := post(answering, "", "/v1/campaigns", "", map[string]any{"campaign": "sale", "codes": 1000, "per_customer": 10}); err != nil || got.Status != http.StatusCreated {
		t.Fatal(got, err)
	}
	key, err := post(answering, "", "/v1/keys", "", map[string]any{"name": "shop", "role": "producer"})
	if err != nil || key.Status != http.StatusCreated {
		t.Fatal(key, err)
	}
	claim := func() (reply, error) {
		return post(answering, key.Secret, "/v1/campaigns/sale/claims", "cart 1", map[string]any{"customer_id": "ann"})
	}
	streamtest.Eventually(t, "the key is in force", func() bool {
		got, err := post(answering, key.Secret, "/v1/validations", "", map[string]any{"code": "AAAA-AAAA-AAAA"})
		return err == nil && got.Status == http.StatusOK
	})

	link.Cut(false, true) // what this server sends arrives, nothing comes back
	answers := make(chan reply, 1)
	go func() {
		got, _ := claim() // an error is no answer
		answers <- got
	}()
	js := srv.JetStream(t)
	codes := func() (all []string) {
		fold, _, err := e2e.ReadLog(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		for _, coupon := range fold.Campaigns["sale"].Coupons {
			all = append(all, coupon.Code)
		}
		return all
	}
	var decided []string
	streamtest.Eventually(t, "the claim is in the log", func() bool {
		decided = codes()
		return len(decided) == 1
	})
	answering.Kill()
	// On a machine so slow that the server gave up before it was killed, the answer is that the effect is unknown.
	if got := <-answers; got.Status != 0 && got.Effect != "unknown" {
		t.Fatalf("the client has an answer: %+v", got)
	}

	link.Heal()
	answering.Up()
	var got reply
	streamtest.Eventually(t, "the key is in force again", func() bool {
		got, err = claim()
		return err == nil && got.Status != http.StatusUnauthorized && got.Status != http.StatusServiceUnavailable
	})
	if got.Status != http.StatusOK || got.Replayed != "true" || got.Code != decided[0] {
		t.Errorf("the same Idempotency-Key again: %+v; the coupon of the claim is %s", got, decided[0])
	}
	if after := codes(); !slices.Equal(after, decided) {
		t.Errorf("after the retry the coupons are %v, before %v", after, decided)
	}
}
