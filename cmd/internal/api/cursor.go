package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// cursor is a place in a list, for clients without meaning: JSON, encrypted, since it may name what the key must not see, such as a
// campaign out of its scope. Any server reads it, and that of another list is none.
func (a *API) cursor(list string, place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic("api: the place of list " + list + " is no JSON: " + err.Error())
	}
	nonce := make([]byte, a.cursors.NonceSize(), 512)
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(a.cursors.Seal(nonce, nonce, text, []byte(list)))
}

// parseCursor reads a cursor; "" is the start.
func parseCursor[T any](a *API, list, s string) (place T, err error) {
	if s == "" {
		return place, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if n := a.cursors.NonceSize(); err == nil && len(raw) >= n {
		if raw, err = a.cursors.Open(nil, raw[:n], raw[n:], []byte(list)); err == nil {
			return place, json.Unmarshal(raw, &place)
		}
	}
	return place, web.New(web.Malformed, "after: must be the value of next in the page before, of the same list").
		At("query.after", "must be next of the page before")
}

// newCursors returns the cipher of cursors, of a key that follows from the secret of all servers.
func newCursors(secret [32]byte) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, secret[:], nil, "scrip cursors v1", sha256.Size)
	if err != nil {
		panic("api: " + err.Error()) // only of a longer key
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("api: " + err.Error()) // only of a key of another length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("api: " + err.Error()) // only of another cipher
	}
	return aead
}
