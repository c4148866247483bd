package topology

import (
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// Names of streams and buckets. A lane's three streams carry its number.
const (
	CmdStreamPrefix = "SCRIP_CMD_"
	EvtStreamPrefix = "SCRIP_EVT_"
	RmdStreamPrefix = "SCRIP_RMD_"

	// LeaseBucket is the KV bucket of leases and server announcements.
	LeaseBucket = "SCRIP_LEASE"
	// StateBucket is the KV bucket of the log's identity and of the snapshot pointers.
	StateBucket = "SCRIP_STATE"
	// SnapBucket is the object store of snapshots.
	SnapBucket = "SCRIP_SNAP"

	// SettingsBucket is the KV bucket of the settings' history and of the skip list.
	SettingsBucket = "SCRIP_CONFIG"
	// AccessBucket is the KV bucket of the keys' history.
	AccessBucket = "SCRIP_ACCESS"
	// WebhooksBucket is the KV bucket of the webhooks' history.
	WebhooksBucket = "SCRIP_WEBHOOKS"
	// PushBucket is the KV bucket in which push senders and webhooks record how far they are.
	PushBucket = "SCRIP_PUSH"
	// OptOutBucket is the KV bucket of the customers who want no reminders.
	OptOutBucket = "SCRIP_OPTOUT"
	// PushWaitStream is the stream of references to messages that wait for a call or a try, and PushDeadStream that of what
	// was given up.
	PushWaitStream = "SCRIP_PUSH_WAIT"
	PushDeadStream = "SCRIP_PUSH_DEAD"
	// PushOutStream is the stream of what was held back for a person, and is let out, merged or withheld. PushOut is its subject.
	PushOutStream = "SCRIP_PUSH_OUT"
	PushOut       = "scrip.push.out"
	// PushWaitSubjects and PushDeadSubjects are what their subjects start with.
	PushWaitSubjects = "scrip.push.wait."
	PushDeadSubjects = "scrip.push.dead."
	// JobsBucket is the KV bucket of the long actions that servers do: the last job of each kind, and of each key.
	JobsBucket = "SCRIP_JOBS"
	// OnceBucket is the KV bucket of what is remembered for a day: answers by Idempotency-Key, and tokens that work once.
	OnceBucket = "SCRIP_ONCE"
	// AuditStream is the stream of what people did that makes no event, for ever.
	AuditStream = "SCRIP_AUDIT"
	// AuditSubject is the one subject of the audit stream.
	AuditSubject = "scrip.audit"

	// LeaseStream, StateStream, SnapStream, SettingsStream, AccessStream, WebhooksStream, JobsStream, OnceStream, PushStream and OptOutStream are
	// the streams of the buckets.
	LeaseStream    = "KV_" + LeaseBucket
	StateStream    = "KV_" + StateBucket
	SnapStream     = "OBJ_" + SnapBucket
	SettingsStream = "KV_" + SettingsBucket
	AccessStream   = "KV_" + AccessBucket
	WebhooksStream = "KV_" + WebhooksBucket
	PushStream     = "KV_" + PushBucket
	JobsStream     = "KV_" + JobsBucket
	OnceStream     = "KV_" + OnceBucket
	OptOutStream   = "KV_" + OptOutBucket
)

// CmdStream is the name of a lane's command stream.
func CmdStream(lane int) string { return CmdStreamPrefix + strconv.Itoa(lane) }

// EvtStream is the name of a lane's event stream.
func EvtStream(lane int) string { return EvtStreamPrefix + strconv.Itoa(lane) }

// RmdStream is the name of a lane's stream of fired reminders.
func RmdStream(lane int) string { return RmdStreamPrefix + strconv.Itoa(lane) }

// Streams are the names of all streams that a log of that many lanes may have, those of buckets included.
func Streams(lanes int) []string {
	all := []string{StateStream, LeaseStream, SnapStream, SettingsStream, AccessStream, WebhooksStream, JobsStream, OnceStream, AuditStream, PushStream, PushWaitStream, PushDeadStream, PushOutStream, OptOutStream}
	for lane := range lanes {
		all = append(all, CmdStream(lane), EvtStream(lane), RmdStream(lane))
	}
	return all
}

// Subjects that the server-side mapping turns into lane subjects, as patterns.
const (
	CmdPattern   = "scrip.cmd.*"
	AdminPattern = "scrip.admin.*"
)

// LaneCmd is for messages with commands of several campaigns of one lane, each line with its campaign, of producers and
// operators. It is for servers: the right to publish here includes an operator's rights.
func LaneCmd(lane int) string { return laneSubject(lane, "cmd") }

// LaneShop is for producers' commands of several campaigns of one lane, each line with its campaign.
func LaneShop(lane int) string { return laneSubject(lane, "shop") }

// LaneCmdFor is what scrip.cmd.<campaign> is mapped to: producers' commands of one campaign.
func LaneCmdFor(lane int, campaign string) string { return laneSubject(lane, "cmd.") + campaign }

// LaneAdminFor is what scrip.admin.<campaign> is mapped to: operators' commands of one campaign.
func LaneAdminFor(lane int, campaign string) string { return laneSubject(lane, "admin.") + campaign }

// LaneDue is for the scheduler's commands.
func LaneDue(lane int) string { return laneSubject(lane, "due") }

// LaneQuery is the subject of queries to the owner of a lane: core NATS request and reply, of no stream.
func LaneQuery(lane int) string { return laneSubject(lane, "query") }

// Evt is the one subject of a lane's event stream.
func Evt(lane int) string { return "scrip.evt." + strconv.Itoa(lane) }

// Rmd is the one subject of a lane's stream of fired reminders.
func Rmd(lane int) string { return "scrip.rmd." + strconv.Itoa(lane) }

func laneSubject(lane int, rest string) string {
	return "scrip.lane." + strconv.Itoa(lane) + "." + rest
}

// MappedCmd and MappedAdmin are the destinations of the server-side subject mapping for a log of that many lanes.
// NATS hashes the campaign token as LaneOf does.
func MappedCmd(lanes int) string { return mapped(lanes, "cmd") }

// MappedAdmin is described at MappedCmd.
func MappedAdmin(lanes int) string { return mapped(lanes, "admin") }

func mapped(lanes int, kind string) string {
	return "scrip.lane.{{partition(" + strconv.Itoa(lanes) + ",1)}}." + kind + ".{{wildcard(1)}}"
}

// LaneOf is the lane of a campaign in a log of that many lanes: FNV-1a-32 of the name, modulo lanes, which is NATS'
// own partition(lanes,1). lanes must be positive.
func LaneOf(campaign string, lanes int) int { return wire.LaneOf(campaign, lanes) }

// Kind is the kind of commands that a subject may carry.
type Kind uint8

// The kinds of command subject.
const (
	// Cmd carries producers' commands of the one campaign in the subject.
	Cmd Kind = iota + 1
	// Admin carries operators' commands of the one campaign in the subject.
	Admin
	// Multi carries commands of several campaigns, each line with its own.
	Multi
	// Due carries the scheduler's commands.
	Due
	// Shop carries producers' commands of several campaigns, each line with its own.
	Shop
)

// ParseCommandSubject parses a subject of a command stream. campaign is empty for Multi, Shop and Due. A subject of another
// form, the unmapped scrip.cmd.<campaign> included, is not ok.
func ParseCommandSubject(subject string) (kind Kind, lane int, campaign string, ok bool) {
	rest, ok := strings.CutPrefix(subject, "scrip.lane.")
	if !ok {
		return 0, 0, "", false
	}
	number, rest, ok := strings.Cut(rest, ".")
	if !ok {
		return 0, 0, "", false
	}
	lane, ok = parseLane(number)
	if !ok {
		return 0, 0, "", false
	}
	what, campaign, one := strings.Cut(rest, ".")
	switch {
	case one && (campaign == "" || strings.Contains(campaign, ".")):
		return 0, 0, "", false
	case one && what == "cmd":
		return Cmd, lane, campaign, true
	case one && what == "admin":
		return Admin, lane, campaign, true
	case !one && what == "cmd":
		return Multi, lane, "", true
	case !one && what == "shop":
		return Shop, lane, "", true
	case !one && what == "due":
		return Due, lane, "", true
	}
	return 0, 0, "", false
}

// parseLane accepts a lane number as laneSubject writes it: no sign, no leading zero.
func parseLane(s string) (int, bool) {
	lane, err := strconv.Atoi(s)
	if err != nil || lane < 0 || strconv.Itoa(lane) != s {
		return 0, false
	}
	return lane, true
}

// Headers of messages in the log and of command messages.
const (
	// HeaderCommands holds "<first>-<last>", the command sequences a step covers, contiguous from step to step.
	HeaderCommands = "Scrip-Commands"
	// HeaderCommandTime holds the stored timestamp of the last covered command.
	HeaderCommandTime = "Scrip-Command-Time"
	// HeaderTime holds the lane's clock after the step.
	HeaderTime = "Scrip-Time"
	// HeaderOwner holds the writer's nonce, new in each term.
	HeaderOwner = "Scrip-Owner"
	// HeaderFormat holds the log format, see Format.
	HeaderFormat = "Scrip-Format"
	// HeaderSeal holds the seal, see package seal.
	HeaderSeal = seal.Header
	// HeaderReply, on a command message, holds the inbox for outcomes.
	HeaderReply = "Scrip-Reply"
	// HeaderTrace, on a command message, names its sampled lines with the traceparents of their spans: LINE:TRACEPARENT,… HeaderStepTrace,
	// on an event message, is the traceparent of its step's span. It has another prefix than all headers that seals and digests
	// cover: a log is the same with traces and without.
	HeaderTrace     = "Scrip-Trace"
	HeaderStepTrace = "Trace-Step"
	// MostTraces is how many sampled lines a message and a step name.
	MostTraces = 32
	// HeaderBy, on a command message on LaneCmd, holds the name of the person who sent its commands, see wire.ValidBy.
	HeaderBy = "Scrip-By"
	// HeaderRebase holds the command sequence a lane continues at: the only break in contiguity.
	HeaderRebase = "Scrip-Rebase"
	// HeaderSource, on a reminder message, holds "<event seq>:<line>:<last r>".
	HeaderSource = "Scrip-Source"
	// HeaderSourceDigest, on a reminder message, holds the digest of the event message named by HeaderSource.
	HeaderSourceDigest = "Scrip-Source-Digest"
	// HeaderPriority, on a reminder message, is the highest priority of the campaigns in it, if that is not normal.
	HeaderPriority = "Scrip-Priority"
	// HeaderHold, on a reminder message, is there if its reminders go to customers by way of PushOutStream only.
	HeaderHold = "Scrip-Hold"
)

// Format is the log format this program writes and reads.
const Format = 1

// maxSubject is the longest accepted subject, in bytes.
const maxSubject = 256

// The prefixes of the inboxes that answers go to: of a user without a key, and of a producer. The servers' own user may publish
// there, and to no other inbox.
const (
	Inboxes         = "_INBOX."
	ProducerInboxes = "_INBOX_producer."
)

const (
	// routed is how NATS rewrites the reply subject of a request that crosses accounts. Clients may not use it.
	routed = "_R_."
	// gateway, two hashes and a dot are what NATS puts in front of a reply subject between the clusters of a supercluster.
	// Clients may not use it; the client's own subject follows.
	gateway     = "_GR_."
	gatewaySize = len(gateway) + 2*len("hash6c.")
)

// MayReply reports whether an answer may be published to the reply subject of a request: a literal subject under Inboxes or
// ProducerInboxes, or one that NATS made of such a subject or of one in another account.
//
// NATS checks the subjects that a client publishes to, but not the reply subjects in its messages. An answer is published with
// the server's own permissions, which include the log and the JetStream API. Every place that publishes to a subject named by
// a client therefore checks it with this first. The answers of NATS itself (PubAcks and JetStream API responses) are not covered:
// the NATS server publishes them to any subject that the request names. The status of a pull has no body, so it deletes a
// stream if it is sent to that API. Only accounts prevent that; see streams/DESIGN.md.
func MayReply(subject string) bool {
	if len(subject) > gatewaySize && subject[:len(gateway)] == gateway {
		subject = subject[gatewaySize:]
	}
	return ReplyInbox(subject) || strings.HasPrefix(subject, routed) && literal(subject)
}

// ReplyInbox reports whether subject is literal and under Inboxes or ProducerInboxes. It is the check for subjects that a client
// names elsewhere than in a message's reply field, where NATS rewrites nothing.
func ReplyInbox(subject string) bool {
	return (strings.HasPrefix(subject, Inboxes) || strings.HasPrefix(subject, ProducerInboxes)) && literal(subject)
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
