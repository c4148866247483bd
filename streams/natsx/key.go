package natsx

import (
	"strings"

	"github.com/nats-io/nats.go"
)

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
