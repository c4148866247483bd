package access

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// The NATS accounts, and who is in them.
const (
	AccountServers  = "SCRIP"    // servers, and the credentials of the data directory
	AccountShop     = "SHOP"     // producers
	AccountCounter  = "COUNTER"  // producers limited to campaigns, to a rate or to codes of new claims, and public ones
	AccountOps      = "OPS"      // support and operators
	AccountAnalysis = "ANALYSIS" // analysts
	AccountSenders  = "SENDERS"  // senders of reminders

	// AccountEmbedded is the name of AccountServers in the embedded NATS server: NATS' global account, which is in the paths of its
	// store.
	AccountEmbedded = "$G"
)

// HeaderRequestInfo is the header that NATS adds to a request from another account: who sent it. A client can hide the line of
// NATS or send another one: see RequesterOf.
const HeaderRequestInfo = "Nats-Request-Info"

const (
	// endpointPrefix starts the subject of each endpoint of the service.
	endpointPrefix = "scrip."
	// guestPrefix starts the subjects on which requests from other accounts arrive in the servers' account.
	guestPrefix = "scrip.guest."
)

// GuestSubject is the subject of the servers' account on which requests from another account to an endpoint arrive. endpoint is
// named without "scrip.", as [Operation.Endpoints] has it; account "*" = all. The import of the other account maps to it, so
// a request there is from that account, whatever its headers, and one elsewhere is from none of them.
func GuestSubject(account, endpoint string) string { return guestPrefix + account + "." + endpoint }

// GuestSubjectOf is GuestSubject of the subject of an endpoint, such as scrip.redeem, for all accounts.
func GuestSubjectOf(subject string) string {
	return GuestSubject("*", strings.TrimPrefix(subject, endpointPrefix))
}

// Requester is the sender of a request from another account.
type Requester struct {
	Account string
	// User is the id of a key.
	User string
}

// The errors of RequesterOf.
var (
	// ErrNoRequester: a header is not what NATS writes.
	ErrNoRequester = errors.New(HeaderRequestInfo + " names no account and key")
	// ErrBadHeaders: a block of headers that no client library writes.
	ErrBadHeaders = fmt.Errorf("the headers are malformed: expected lines \"Name: value\" that end with CR LF, at most %d, without %s", maxHeaders, HeaderRequestInfo)
	// ErrAnswer: a message of a server, to a reply subject that is an endpoint which the requester's account imports. The
	// requester's rights are unknown.
	ErrAnswer = errors.New("this is an answer, not a request")
)

// maxHeaders bounds the header values of a request; see checkHeaders.
const maxHeaders = 16

// RequesterOf returns who sent a request that arrived on a subject of the service. local is true for one from the servers' own
// account, whose clients may do everything; r is empty then. Errors: of the kinds above. m is as nats.go has received it.
func RequesterOf(m *nats.Msg) (r Requester, local bool, err error) {
	if err := checkHeaders(m); err != nil {
		return r, false, err
	}
	rest, guest := strings.CutPrefix(m.Subject, guestPrefix)
	account, _, _ := strings.Cut(rest, ".")
	info := m.Header[HeaderRequestInfo]
	switch {
	case !guest && len(info) > 0:
		return r, false, ErrNoRequester // of an account whose imports are not those of scrip
	case !guest:
		return r, true, nil
	case len(info) != 1:
		return r, false, ErrNoRequester
	}
	switch r, err = ParseRequester(info[0]); {
	case err != nil:
		return Requester{}, false, err
	case r.Account != account:
		return Requester{}, false, ErrAnswer
	case !ValidID(r.User):
		return Requester{}, false, ErrNoRequester
	}
	return r, false, nil
}

// checkHeaders refuses a request in whose headers the line of NATS may be hidden or is not the only one of its name.
//
// nats-server does not check the block of a client. It removes lines of that name that follow a CR LF, cuts the last two bytes
// off, and appends its line. nats.go stops at a blank line, accepts a line that ends with LF, and returns no headers for a
// block that it cannot read. So the line of NATS is the last of the block, and it is lost if the block ends earlier, or if it
// continues another line. Neither can be:
//
//   - nats.go has read the whole block. Written again, with ": " and CR LF, the headers would be at least as long as the block. A
//     line can have two bytes less than that, and with at most maxHeaders lines the difference is shorter than the line of NATS.
//   - The name is in no other name and in no value, so it continues no other line. A block with a status is an answer.
func checkHeaders(m *nats.Msg) error {
	size := m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) // of the block as received
	if size == 0 {
		return nil
	}
	values, written := 0, len("NATS/1.0\r\n")+len("\r\n")
	for name, all := range m.Header {
		values += len(all)
		if name == "Status" || name != HeaderRequestInfo && strings.Contains(name, HeaderRequestInfo) {
			return ErrBadHeaders
		}
		for _, value := range all {
			written += len(name) + len(": ") + len(value) + len("\r\n")
			if strings.Contains(value, HeaderRequestInfo) {
				return ErrBadHeaders
			}
		}
	}
	if m.Header == nil || size > written || values > maxHeaders {
		return ErrBadHeaders
	}
	return nil
}

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
