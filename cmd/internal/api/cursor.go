package api

import (
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
	return base64.RawURLEncoding.EncodeToString(a.cursors.Seal(text, list))
}

// parseCursor reads a cursor; "" is the start.
func parseCursor[T any](a *API, list, s string) (place T, err error) {
	if s == "" {
		return place, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err == nil {
		if raw, err = a.cursors.Open(raw, list); err == nil {
			return place, json.Unmarshal(raw, &place)
		}
	}
	return place, web.New(web.Malformed, "after: must be the value of next in the page before, of the same list").
		At("query.after", "must be next of the page before")
}
