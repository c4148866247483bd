package natsx

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Refused is the line that a server logs for each Violation of its own user. It is a fault of scrip, or of the accounts that an
// external NATS has; tests fail on it.
const Refused = "NATS refuses a subject to the servers' own user, so a part of scrip does not work; " +
	"make the accounts of an external NATS again (scrip nats config), or report this"

// Violation returns the subject that NATS refuses to the user of a connection, and what for, as NATS writes it: publish or
// subscription. ok is false for an error of another kind.
func Violation(err error) (what, subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", "", false
	}
	text := err.Error()
	_, what, _ = strings.Cut(strings.ToLower(text), "violation for ")
	what, _, _ = strings.Cut(what, " ")
	if at := strings.IndexByte(text, '"'); at >= 0 {
		quoted, err := strconv.QuotedPrefix(text[at:])
		if err == nil {
			subject, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		}
	}
	return what, subject, true
}
