package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Headers of commands, in the document.
const (
	aboutIdempotencyKey = "Of your choice, one for each change. A retry with the same one has no second effect and gets the first answer, or " +
		"409 where what it did is over. It is remembered per campaign, for the campaign's life. Without one the server makes an id, in " +
		"Scrip-Command-Id of the answer and id of its body, which a retry sends as this header."
	aboutCommandID = "The id of the command in the log. If the request had no Idempotency-Key, send it as that to repeat the request."
	aboutReplayed  = "true: nothing was written; the command was decided before, or what it requests is so already."
)

// maxIdempotencyKey bounds the header, in bytes.
const maxIdempotencyKey = 255

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// Lengths of the parts of an id that the server makes, in symbols of 5 bits.
const (
	madePrefix = "m"
	madeRandom = 24 // of one of 10^9 ids of a campaign, the chance to be equal to another is 10^-18
	madeCheck  = 12
)

// checkIdempotencyKey returns the problem of a header that has no meaning. Routes of operators have no use for it: what they
// change are no commands, and a retry that seems safe would make a second key or webhook.
func (r Route) checkIdempotencyKey(given []string) *web.Problem {
	wrong := func(c web.Code, message string) *web.Problem {
		return web.New(c, "Idempotency-Key "+message).At("header.Idempotency-Key", message)
	}
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1 || given[0] == "":
		return wrong(web.Malformed, "must be given once, with a value, or not at all")
	case r.Tag == "operation" && r.Method != http.MethodGet:
		return wrong(web.Malformed, "is not for this route, which does not remember it; send the request without, and after a lost answer read what is there")
	case len(given[0]) > maxIdempotencyKey || strings.ContainsFunc(given[0], func(c rune) bool { return c < ' ' || c > '~' }):
		return wrong(web.Code(wire.Invalid), "must be 1 to 255 printable ASCII characters")
	}
	return nil
}

// commandID is the id of the command of a request: of its Idempotency-Key, and of the client that sent it, so that two clients
// that choose the same one never meet, and one whose key was rotated repeats its commands; without one it is new.
//
// An id that the server made for this client may be sent as Idempotency-Key, and is the id then: a client whose first request
// had none retries it like that. Such an id ends with a checksum over the rest and the client's name: that of another client is
// an Idempotency-Key like any other.
func commandID(p access.Principal, idempotencyKey string) string {
	switch {
	case idempotencyKey == "":
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		text := madePrefix + symbols(random[:], madeRandom)
		return text + madeFor(p, text)
	case madeID(p, idempotencyKey):
		return idempotencyKey
	}
	sum := sha256.Sum256([]byte(p.Client() + "\x00" + idempotencyKey))
	return "h" + symbols(sum[:], 25)
}

// madeID reports whether the server made this id for a client.
func madeID(p access.Principal, id string) bool {
	text := len(madePrefix) + madeRandom
	return len(id) == text+madeCheck && strings.HasPrefix(id, madePrefix) && id[text:] == madeFor(p, id[:text])
}

// madeFor is the checksum of an id that the server makes for a client.
func madeFor(p access.Principal, text string) string {
	sum := sha256.Sum256([]byte("made\x00" + p.Client() + "\x00" + text))
	return symbols(sum[:], madeCheck)
}

// symbols are the first n symbols of bytes as text.
func symbols(b []byte, n int) string { return idEncoding.EncodeToString(b)[:n] }
