package signature

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The vector that the specification's reference libraries are tested with.
func TestVector(t *testing.T) {
	const (
		id   = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		body = `{"test": 2432232314}`
		want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	)
	at := time.Unix(1614265330, 0)
	s, err := Parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Sign(id, at, []byte(body)); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	h := http.Header{}
	Set(h, id, at, []byte(body), NewSecret(), s)
	if got, err := Verify(h, []byte(body), at.Add(time.Minute), 5*time.Minute, s); err != nil || got != id {
		t.Errorf("%q, %v", got, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	s, at := NewSecret(), time.Unix(1_800_000_000, 0)
	signed := func(change func(http.Header)) http.Header {
		h := http.Header{}
		Set(h, "evt_1", at, []byte("{}"), s)
		change(h)
		return h
	}
	for name, h := range map[string]http.Header{
		"no header":         {},
		"another id":        signed(func(h http.Header) { h.Set(HeaderID, "evt_2") }),
		"another time":      signed(func(h http.Header) { h.Set(HeaderTimestamp, "1800000001") }),
		"no time":           signed(func(h http.Header) { h.Set(HeaderTimestamp, "now") }),
		"another version":   signed(func(h http.Header) { h.Set(HeaderSignature, "v1a"+h.Get(HeaderSignature)[2:]) }),
		"no base64":         signed(func(h http.Header) { h.Set(HeaderSignature, "v1,!") }),
		"another's":         signed(func(h http.Header) { h.Set(HeaderSignature, NewSecret().Sign("evt_1", at, []byte("{}"))) }),
		"without signature": signed(func(h http.Header) { h.Del(HeaderSignature) }),
	} {
		if _, err := Verify(h, []byte("{}"), at, time.Minute, s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, now := range []time.Time{at.Add(2 * time.Minute), at.Add(-2 * time.Minute)} {
		if _, err := Verify(signed(func(http.Header) {}), []byte("{}"), now, time.Minute, s); !errors.Is(err, ErrInvalid) {
			t.Errorf("at %s: %v", now, err)
		}
	}
	if _, err := Verify(signed(func(http.Header) {}), []byte("{} "), at, time.Minute, s); !errors.Is(err, ErrInvalid) {
		t.Errorf("another body: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "whsec_", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_====", NewSecret().Text()} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if coded := strings.TrimPrefix(text, prefix); len(coded) > 6 && strings.Contains(err.Error(), coded) {
				t.Errorf("the error quotes the secret: %v", err)
			}
			return
		}
		if again, err := Parse(s.Text()); err != nil || string(again.key) != string(s.key) {
			t.Errorf("%q is not read as it was written: %v", text, err)
		}
		if shown := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(shown, s.Text()[len(prefix):]) {
			t.Errorf("it is shown as %s", shown)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-1": 0, "soon": 0, "99999999999999999999": 0,
		"Fri, 15 Jan 2027 08:01:30 GMT": 90 * time.Second, "Fri, 15 Jan 2027 07:00:00 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestFailedNamesPartsOfTheRequest: what a 207 names must be there.
func TestFailedNamesPartsOfTheRequest(t *testing.T) {
	for body, want := range map[string]string{
		`{"failed":[2,0,2],"error":"no device"}`: `[0 2] no device <nil>`, `{"failed":[]}`: `[]  <nil>`,
	} {
		if failed, why, err := Failed([]byte(body), nil, 3); fmt.Sprintln(failed, why, err) != want+"\n" {
			t.Errorf("%s: %v %q %v", body, failed, why, err)
		}
	}
	for _, body := range []string{``, `{}`, `{"failed":null}`, `{"failed":[3]}`, `{"failed":[-1]}`, `{"failed":["0"]}`} {
		if failed, _, err := Failed([]byte(body), nil, 3); err == nil {
			t.Errorf("%s: %v", body, failed)
		}
	}
}
