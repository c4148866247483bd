package natsx

import "strings"

// maxSubject is the longest accepted subject, in bytes.
const maxSubject = 256

const (
	inbox = "_INBOX"
	// routed is how NATS rewrites the reply subject of a request that crosses accounts. Clients may not use it.
	routed = "_R_."
	// gateway, two hashes and a dot are what NATS puts in front of a reply subject between the clusters of a supercluster.
	// Clients may not use it; the client's own subject follows.
	gateway     = "_GR_."
	gatewaySize = len(gateway) + 2*len("hash6c.")
)

// MayReply reports whether an answer may be published to the reply subject of a request: a literal subject under _INBOX. or
// _INBOX_<user>., or one that NATS made of such a subject or of one in another account.
func MayReply(subject string) bool {
	if len(subject) > gatewaySize && subject[:len(gateway)] == gateway {
		subject = subject[gatewaySize:]
	}
	return ReplyInbox(subject) || strings.HasPrefix(subject, routed) && literal(subject)
}

// ReplyInbox reports whether subject is literal and under _INBOX. or _INBOX_<user>. It is the check for subjects that a client names
// elsewhere than in a message's reply field, where NATS rewrites nothing.
func ReplyInbox(subject string) bool {
	if len(subject) < len(inbox)+2 || subject[:len(inbox)] != inbox {
		return false
	}
	if c := subject[len(inbox)]; c != '.' && c != '_' {
		return false
	}
	return literal(subject)
}

// literal reports whether subject has at least two tokens, none empty, and no wildcard or control character.
func literal(subject string) bool {
	if len(subject) > maxSubject {
		return false
	}
	dots, length := 0, 0
	for i := 0; i < len(subject); i++ {
		switch c := subject[i]; {
		case c == '.':
			if length == 0 {
				return false
			}
			dots, length = dots+1, 0
		case c == '*' || c == '>' || c <= ' ' || c >= 0x7f:
			return false
		default:
			length++
		}
	}
	return dots > 0 && length > 0
}

// The counter of requests that one place of a server, label "place", dropped because their reply subject is no inbox. It is no
// metric here: the SDK imports this package, and no library of metrics.
const (
	RepliesRefused     = "scrip_replies_refused_total"
	RepliesRefusedHelp = "Requests whose reply subject is no inbox, by place. Nothing was published there."
)
