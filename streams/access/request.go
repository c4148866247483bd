package access

import (
	"errors"
	"strings"
)

// The NATS accounts, and who is in them.
const (
	AccountServers  = "SCRIP"    // servers, and the credentials of the data directory
	AccountShop     = "SHOP"     // producers
	AccountCounter  = "COUNTER"  // producers limited to campaigns, and public ones
	AccountOps      = "OPS"      // support and operators
	AccountAnalysis = "ANALYSIS" // analysts
	AccountSenders  = "SENDERS"  // senders of reminders

	// AccountEmbedded is the name of AccountServers in the embedded NATS server: NATS' global account. A store has the account in
	// its paths, and those of all versions have this one.
	AccountEmbedded = "$G"
)

// HeaderRequestInfo is what NATS puts on a request that comes from another account: who sent it. It replaces one that the
// client has sent.
const HeaderRequestInfo = "Nats-Request-Info"

// Requester is the sender of a request from another account.
type Requester struct {
	Account string
	// User is the id of a key, or the name of a user of the NATS configuration.
	User string
}

// ErrNoRequester: a header is not what NATS writes.
var ErrNoRequester = errors.New(HeaderRequestInfo + " names no account and user")

// ParseRequester reads the value of HeaderRequestInfo. It looks for two members of the JSON object, because the header is on
// every request and has a dozen: within a text, JSON writes a quote only after a backslash, so a name that a client chose
// cannot hold the members. An account or a user with a backslash is refused.
func ParseRequester(header string) (r Requester, err error) {
	account, ok := member(header, `"acc":"`)
	if !ok {
		return r, ErrNoRequester
	}
	user, ok := member(header, `"user":"`)
	if !ok {
		return r, ErrNoRequester
	}
	return Requester{Account: account, User: user}, nil
}

func member(object, key string) (value string, ok bool) {
	at := strings.Index(object, key)
	if at < 0 {
		return "", false
	}
	value, _, ok = strings.Cut(object[at+len(key):], `"`)
	return value, ok && value != "" && !strings.Contains(value, `\`)
}
