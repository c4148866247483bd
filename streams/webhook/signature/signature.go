package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	prefix  = "whsec_"
	version = "v1,"
	// secretBytes is the length of a new secret; others may have leastBytes to mostBytes.
	secretBytes, leastBytes, mostBytes = 32, 24, 64
)

// Secret signs requests. Its zero value signs nothing and is not valid.
type Secret struct{ key []byte }

// NewSecret makes a random secret of 32 bytes.
func NewSecret() Secret {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return Secret{key}
}

// Parse reads a secret in the form of Text: whsec_ and base64 of 24 to 64 bytes. Its errors do not quote it.
func Parse(text string) (Secret, error) {
	coded, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	key, err := base64.StdEncoding.Strict().DecodeString(coded)
	if !ok || err != nil || len(key) < leastBytes || len(key) > mostBytes {
		return Secret{}, fmt.Errorf("a secret is %s and base64 of %d to %d bytes", prefix, leastBytes, mostBytes)
	}
	return Secret{key}, nil
}

// Text is the form in which a secret is given to a receiver.
func (s Secret) Text() string { return prefix + base64.StdEncoding.EncodeToString(s.key) }

// String keeps the secret out of logs.
func (s Secret) String() string { return prefix + "…" }

// GoString is described at String.
func (s Secret) GoString() string { return s.String() }

// Bytes returns the key, to store it sealed.
func (s Secret) Bytes() []byte { return s.key }

// FromBytes is the opposite of Bytes.
func FromBytes(key []byte) Secret { return Secret{key} }

// Sign returns one signature of a request.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	return version + base64.StdEncoding.EncodeToString(s.sum(id, strconv.FormatInt(at.Unix(), 10), body))
}

func (s Secret) sum(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Set sets the three headers of a request, with a signature by each secret.
func Set(h http.Header, id string, at time.Time, body []byte, secrets ...Secret) {
	var all []string
	for _, s := range secrets {
		all = append(all, s.Sign(id, at, body))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, strings.Join(all, " "))
}

// ErrInvalid: the request was not signed with the secret, or not within the tolerance.
var ErrInvalid = errors.New("the request has no valid webhook signature")

// Verify is for receivers: it checks that a request was signed with the secret, at most tolerance before or after now (5
// minutes are usual), and returns its id.
func Verify(h http.Header, body []byte, now time.Time, tolerance time.Duration, s Secret) (id string, err error) {
	id = h.Get(HeaderID)
	timestamp := h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || len(s.key) == 0 {
		return "", ErrInvalid
	}
	if d := now.Sub(time.Unix(seconds, 0)); d > tolerance || d < -tolerance {
		return "", fmt.Errorf("%w: it is %s old", ErrInvalid, d.Round(time.Second))
	}
	want := s.sum(id, timestamp, body)
	for one := range strings.FieldsSeq(h.Get(HeaderSignature)) {
		coded, ok := strings.CutPrefix(one, version)
		have, err := base64.StdEncoding.DecodeString(coded)
		if ok && err == nil && hmac.Equal(have, want) {
			return id, nil
		}
	}
	return "", ErrInvalid
}

// RetryAfter reads the header Retry-After of a response: seconds, or an HTTP date; 0 = there is none, or it has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// Away reports whether a status means that the receiver is away or has no time, whatever the request holds.
func Away(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Failed reads the body of a 207, {"failed":[0,3],"error":"…"}: which of the n parts of the request were not taken, sorted, and
// why. readErr is that of reading the body.
func Failed(body []byte, readErr error, n int) (failed []int, why string, err error) {
	var result struct {
		Failed []int  `json:"failed"`
		Error  string `json:"error"`
	}
	if err = readErr; err == nil {
		err = json.Unmarshal(body, &result)
	}
	if err == nil && (result.Failed == nil || slices.ContainsFunc(result.Failed, func(i int) bool { return i < 0 || i >= n })) {
		err = fmt.Errorf("the request has the indexes 0 to %d", n-1)
	}
	if err != nil {
		return nil, "", fmt.Errorf(`it responded 207, but not {"failed":[…]} with indexes: %w`, err)
	}
	slices.Sort(result.Failed)
	return slices.Compact(result.Failed), result.Error, nil
}
