// Package replyto decides to which subjects a server may publish an answer.
//
// NATS checks the subjects that a client publishes to, but not the reply subjects in its messages. An answer is published
// with the server's own permissions, which include the log and the JetStream API. Every place that publishes to a subject
// named by a client therefore checks it here first, and counts refusals.
//
// The answers of NATS itself (PubAcks and JetStream API responses) are not covered: the NATS server publishes them to any
// subject that the request names. The status of a pull has no body, so it deletes a stream if it is sent to that API. Only
// accounts prevent that; see streams/DESIGN.md.
package replyto

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

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

// May reports whether an answer may be published to the reply subject of a request: a literal subject under _INBOX. or
// _INBOX_<user>., or one that NATS made of such a subject or of one in another account.
func May(subject string) bool {
	if len(subject) > gatewaySize && subject[:len(gateway)] == gateway {
		subject = subject[gatewaySize:]
	}
	return Inbox(subject) || strings.HasPrefix(subject, routed) && literal(subject)
}

// Inbox reports whether subject is literal and under _INBOX. or _INBOX_<user>. It is the check for subjects that a client names
// elsewhere than in a message's reply field, where NATS rewrites nothing.
func Inbox(subject string) bool {
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

// Refused returns the counter of requests that one place of a server dropped because their reply subject is no inbox. Each
// place registers its own.
func Refused(place string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "scrip_replies_refused_total",
		Help:        "Requests whose reply subject is no inbox, by place. Nothing was published there.",
		ConstLabels: prometheus.Labels{"place": place},
	})
}
