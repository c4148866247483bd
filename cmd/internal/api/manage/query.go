package manage

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// queryWait is how long lanes and tables may take to answer. During a takeover a lane is without an owner for some seconds.
const queryWait = 5 * time.Second

// isRefused reports whether a query was refused for that reason.
func isRefused(err error, r wire.Refusal) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Outcome.Refusal == r
}

// unanswered is the problem of a query without an answer; a refusal stays one.
func unanswered(what string, err error) error {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		return web.Refused(&refused.Outcome)
	}
	return unavailable(what+" cannot be read", err)
}

// A cursor is a place in a list, for clients without meaning: base64url of the list's name and JSON. A change of its form makes
// cursors in flight invalid, and clients begin the list again.

func cursor(list string, place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic("manage: the place of list " + list + " is no JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append([]byte(list+" "), text...))
}

// parseCursor reads a cursor; "" is the beginning.
func parseCursor[T any](list, s string) (place T, err error) {
	if s == "" {
		return place, nil
	}
	wrong := web.New(web.Malformed, "after: must be the value of next in the page before, of the same list").At("query.after", "must be next of the page before")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return place, wrong
	}
	name, text, _ := strings.Cut(string(raw), " ")
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if name != list || d.Decode(&place) != nil || d.More() {
		return place, wrong
	}
	return place, nil
}
