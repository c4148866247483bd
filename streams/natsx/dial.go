package natsx

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// PingEvery and PingsOut close a silent connection after (PingsOut+1)*PingEvery = 3 s. A server is then connected through
	// another node before the others take its lanes (lease.TTL), and before JetStream elects other leaders in place of
	// an unreachable node (4 to 9 s). A shorter time would also hit nodes that are only busy.
	PingEvery = time.Second
	PingsOut  = 2
	// WriteWait is how long a write may block. While it does nats.go sends no pings either, so that without this bound a
	// busy connection whose buffers are full would outlast an idle one by a minute.
	WriteWait = 3 * time.Second
	// GuestConnections and GuestSubscriptions are how many connections an account of users with keys may have on a cluster, and
	// how many subscriptions each of them.
	GuestConnections   = 4096
	GuestSubscriptions = 256
	// ReconnectWait is the pause after all nodes have been tried.
	ReconnectWait = 250 * time.Millisecond
	// ReconnectJitter is added to the pause, at random up to this, so that many clients do not reconnect at once.
	ReconnectJitter = 250 * time.Millisecond
)

// Options returns the options of a connection that reconnects for ever. Options of the caller are appended and override them.
func Options(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1),
		nats.PingInterval(PingEvery), nats.MaxPingsOutstanding(PingsOut), nats.FlusherTimeout(WriteWait),
		nats.ReconnectWait(ReconnectWait), nats.ReconnectJitter(ReconnectJitter, ReconnectJitter),
	}
}

// The key of a user starts with sk_ROLE_ and the id of the key; package access has the rest of its form. The id is no
// secret.
const (
	keyPrefix = "sk_"
	keyID     = 8
	keyLeast  = keyID + 16

	inboxPrefix = "_INBOX_"
)

// Inbox is the prefix of the inboxes of a user with a key. Users may subscribe to subjects under their own alone: what is
// published there may have codes.
func Inbox(role, id string) string { return inboxPrefix + role + "." + id }

// IsInbox reports whether a prefix of inboxes is that of a user with a key.
func IsInbox(prefix string) bool {
	_, _, ok := OfInbox(prefix)
	return ok
}

// OfInbox returns the role and the id of the key whose inboxes have this prefix. ok is false for any other prefix.
func OfInbox(prefix string) (role, id string, ok bool) {
	rest, ok := strings.CutPrefix(prefix, inboxPrefix)
	role, id, found := strings.Cut(rest, ".")
	return role, id, ok && found && role != "" && len(id) == keyID
}

// KeyInbox is the Inbox of a key, "" for a text that has not the form of one.
func KeyInbox(key string) string {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	role, text, found := strings.Cut(rest, "_")
	if !ok || !found || role == "" || len(text) < keyLeast || strings.ContainsFunc(role+text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return ""
	}
	return Inbox(role, text[:keyID])
}

// Keyed adds to the options of a connection what a log-in with a key needs, the prefix of its inboxes. The key is the token or
// the password, in the URLs (nats://KEY@HOST:PORT) or in the options. Without a key, or with a prefix of the caller's,
// nothing is added.
func Keyed(urls string, opts ...nats.Option) []nats.Option {
	o := nats.GetDefaultOptions()
	for _, set := range opts {
		if set == nil || set(&o) != nil {
			return opts // nats.Connect reports it
		}
	}
	if o.InboxPrefix != "" {
		return opts
	}
	if inbox := keyOf(urls, &o); inbox != "" {
		return append(opts[:len(opts):len(opts)], nats.CustomInboxPrefix(inbox))
	}
	return opts
}

// keyOf returns the inbox prefix of the key that a connection logs in with.
func keyOf(urls string, o *nats.Options) string {
	texts := []string{o.Token, o.Password}
	all, _ := URLs(urls) // nats.Connect reports an error
	for _, u := range all {
		password, _ := u.User.Password()
		texts = append(texts, u.User.Username(), password)
	}
	for _, text := range texts {
		if inbox := KeyInbox(text); inbox != "" {
			return inbox
		}
	}
	return ""
}

// URLs parses a list of NATS URLs as nats.go does: commas between them, blanks around them, and the scheme nats for one
// without a scheme. Its error holds no credentials.
func URLs(list string) (all []*url.URL, err error) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil {
			return nil, errURL
		}
		all = append(all, u)
	}
	return all, nil
}

// errURL does not wrap the parser's error, which has the URL.
var errURL = errors.New("the URL is invalid; give one such as nats://USER:PASSWORD@HOST:PORT, or several separated by commas")

// WithoutUser removes the credentials from a list of URLs, so that it can be shown: a key is the user of its URL.
func WithoutUser(list string) string {
	if list == "" {
		return ""
	}
	all, err := URLs(list)
	if err != nil {
		return "(an invalid URL)"
	}
	var out []string
	for _, u := range all {
		u.User = nil
		out = append(out, u.String())
	}
	return strings.Join(out, ",")
}
