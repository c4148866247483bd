package wire

import (
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// Field is a name that a line may carry.
type Field uint8

// The fields of commands, in the order in which commands are written and problems are reported.
const (
	fUnknown Field = iota
	fID
	fType
	fCampaign
	fCodes
	fPerCustomer
	fOpensAt
	fClosesAt
	fExpiresAt
	fValidFor
	fLateAfter
	fMaxRedemptions
	fReminders
	fPrefix
	fCategory
	fPriority
	fBenefit
	fCustomerID
	fAttributes
	fCode
	fN // of a coupon, in a command instead of its code
	fOrderID
	fReason
	fKind
	fBefore
	fZone
	fThrough
	fDueAt
	fThroughR
	fReadyAt
	fIfVersion
	fWeakCodes
	fCount
	fBatch
	fRequestID
	numCommandFields
)

// The fields that only events and outcomes carry.
const (
	fAt = numCommandFields + iota
	fNumber
	fCodeList // named codes too: the codes themselves, where fCodes is their number
	fCustomerIDs
	fRList // named r too: those of fCustomerIDs
	fRedeemedCount
	fStatus
	fR
	fFromR
	fFired
	fDropped
	fPassed
	fCounts
	fSample
	fSequence
	fLine
	fLastSequence
	fBytes
	fPayload
	fRefusal
	fMessage
	fRepeat
	fCouponStatus
	fReplaces
	fByN
	fMerged
	fWithheld
	fBy
	fFromN
	fThroughN
	numFields

	// always marks, in a list of fields, one that is written even if it is zero.
	always Field = 1 << 7
)

// Secret is what a text must be masked for.
type Secret uint8

// The secrets.
const (
	NoSecret       Secret = iota
	SecretCode            // a coupon's code: who has it can redeem it
	SecretCustomer        // a customer's id
	SecretQuote           // what a producer sent, which may hold any of the others
)

// fieldSpec is a row of the table of fields. The kind of a value follows from the Go type that Settings.at, Command.at,
// Event.at and Outcome.at give for the field; the bounds hold for commands, which is where values enter.
type fieldSpec struct {
	name   string
	key    string   // the name as it is written after another field
	least  uint64   // of a number, or of a duration in nanoseconds
	most   uint64   // likewise; of a text its bytes
	oneOf  []string // the texts allowed; nil = any
	anchor bool     // an instant that reminders depend on, so not before 1972
	secret Secret   // what a reader of events learns from it that not everyone may know
	about  string   // for documents; "" = the name is enough
}

var fieldSpecs = [numFields]fieldSpec{
	fID:   {name: "id", most: MaxCommandID, about: "Of its own for each command; the same one for a retry."},
	fType: {name: "type", about: "What the line requests or records."},
	fCampaign: {name: "campaign", most: MaxCampaignName,
		about: "The campaign's name. 1 to 64 of A-Z a-z 0-9 _ -. Beside a code it is required if that is imported."},
	fCodes: {name: "codes", most: MaxCodes,
		about: "How many coupons there are; 0 = their codes are imported. A change may only let it grow."},
	fPerCustomer: {name: "per_customer", most: MaxPerCustomer,
		about: "Coupons that one customer may claim; 0 = unlimited; 1 unless given."},
	fOpensAt:  {name: "opens_at", anchor: true, about: "Claims before it are refused."},
	fClosesAt: {name: "closes_at", anchor: true, about: "Claims from it on are refused; expires_at unless given."},
	fExpiresAt: {name: "expires_at", anchor: true,
		about: "When the coupon expires; of a campaign, when those do that have no expiry of their own."},
	fValidFor: {name: "valid_for", least: uint64(time.Second), most: uint64(MaxValidFor),
		about: "How long a coupon is valid from its claim, instead of expires_at: a Go duration such as 720h."},
	fLateAfter: {name: "late_after", least: uint64(time.Second), most: uint64(MaxBefore),
		about: "Reminders later than this are dropped: a Go duration."},
	fMaxRedemptions: {name: "max_redemptions", least: 1, most: MaxRedemptions, about: "How often a coupon may be redeemed; 1 unless given."},
	fReminders: {name: "reminders", least: 1, most: MaxPending,
		about: "How many reminders may be pending; 3 for each code, and 10,000 at least, unless given."},
	fPrefix:   {name: "prefix", about: "Before each code; cosmetic."},
	fCategory: {name: "category", most: MaxCategory, about: "Of your choice; the read tables have it."},
	fPriority: {name: "priority", oneOf: []string{PriorityHigh, PriorityNormal, PriorityLow},
		about: "Of what falls due: high, normal or low; normal unless given."},
	fBenefit:    {name: "benefit", most: MaxBenefit, about: "Any JSON. The outcome of a redemption has it."},
	fCustomerID: {name: "customer_id", most: MaxCustomerID, secret: SecretCustomer, about: "The customer's id. Beside a code it must be the holder's."},
	fAttributes: {name: "attributes", most: MaxAttributes, about: "A flat object of texts, numbers and booleans."},
	fCode: {name: "code", most: MaxCodeInput, secret: SecretCode,
		about: "The coupon's code. As it was typed: case, spaces and hyphens do not count. Required without n."},
	fN: {name: "n", least: 1, most: MaxCodes,
		about: "The coupon's number in its campaign. Keys of support and operators may give campaign and n instead of a code."},
	fOrderID: {name: "order_id", most: MaxOrderID, about: "The order's id."},
	fReason:  {name: "reason", most: MaxReason, about: "Why it was voided, or rejected."},
	fKind: {name: "kind", oneOf: []string{KindOpens, KindExpires},
		about: "opens: before claims open. expires: before the customer's newest coupon expires."},
	fBefore:        {name: "before", most: uint64(MaxBefore), about: "How long before, a Go duration such as 24h."},
	fZone:          {name: "zone", most: MaxZone, about: "The customer's time zone, such as Europe/Berlin; its quiet hours and days count."},
	fThrough:       {name: "through", about: "Coupons that expire up to it."},
	fDueAt:         {name: "due_at", about: "When the reminder is due."},
	fThroughR:      {name: "through_r", least: 1, most: 1 << 53},
	fReadyAt:       {name: "ready_at"},
	fIfVersion:     {name: "if_version", most: MaxVersion, about: "The version that the campaign must have."},
	fWeakCodes:     {name: "weak_codes", about: "Codes that can be guessed are allowed."},
	fRequestID:     {name: "request_id", most: MaxRequestID, about: "Of the request that caused it, where its client sent one: X-Request-Id."},
	fAt:            {name: "at", about: "When it happened."},
	fNumber:        {name: "number", most: math.MaxUint32, about: "Of the campaign: a part of its codes."},
	fCodeList:      {name: "codes", secret: SecretCode, about: "The codes."},
	fCustomerIDs:   {name: "customer_ids", secret: SecretCustomer, about: "The customers, at most 5,000."},
	fRList:         {name: "r", about: "The numbers of the customers' reminders, in the same order."},
	fRedeemedCount: {name: "redeemed_count", most: math.MaxUint32, about: "How often the coupon is redeemed."},
	fStatus:        {name: "status", oneOf: CouponStatuses, about: "What the coupon is."},
	fCount:         {name: "count", least: 1, most: MaxCodes, about: "Codes imported, or coupons allotted or expired."},
	fBatch:         {name: "batch", most: MaxBatch, about: "The name of an allotment, its own in the campaign: 1 to 64 of A-Z a-z 0-9 _ -."},
	fR:             {name: "r", about: "The number of the reminder in its campaign."},
	fFromR:         {name: "from_r", about: "The first reminder of those that are due."},
	fFired:         {name: "fired", about: "How many fired."},
	fDropped:       {name: "dropped", about: "How many were dropped: too late, or of no use any more."},
	fPassed:        {name: "passed", about: "If given, only those that announce an instant up to it."},
	fCounts:        {name: "counts", about: "How many commands were refused, by refusal."},
	fSample:        {name: "sample", secret: SecretQuote, about: "Some names of campaigns that do not exist."},
	fSequence:      {name: "sequence", about: "Of the message with the rejected command."},
	fLine:          {name: "line", most: math.MaxUint32, about: "Within it, from 1; absent for the whole message."},
	fLastSequence:  {name: "last_sequence", about: "Of the last message, where the event represents several lines."},
	fBytes:         {name: "bytes", about: "How long these lines are together."},
	fPayload:       {name: "payload", secret: SecretQuote, about: "What was rejected, at most 1,024 bytes."},
	fRefusal:       {name: "refusal", oneOf: refusalNames, about: "Why nothing was done."},
	fMessage:       {name: "message", about: "The same for people."},
	fRepeat:        {name: "repeat", about: "Nothing was written: it was decided before, or is so already."},
	fCouponStatus: {name: "coupon_status", oneOf: CouponStatuses[1:],
		about: "Of a repeat or a validation: voided, redeemed or expired, if the coupon is that by now and status does not have it."},
	fReplaces: {name: "replaces", most: math.MaxUint32, about: "The customer's coupon before it, which is void."},
	fByN:      {name: "by_n", about: "The command named the coupon by campaign and n, not by its code."},
	fMerged:   {name: "merged", about: "Delivered to these customers in one message with the line before it."},
	fWithheld: {name: "withheld", oneOf: withheldReasons, about: "Why it is not delivered: the customer's quiet hours, or the cap of a day, until it is of no use."},
	fBy:       {name: "by", about: "The person whose command caused it."},
	fFromN:    {name: "from_n", most: MaxCodes, about: "The first coupon of the allotment."},
	fThroughN: {name: "through_n", most: MaxCodes, about: "The last one."},
}

// general are the fields of all commands.
var general = fields(fID, fType, fCampaign)

// settingFields are those of a campaign's settings, in the order in which they are written.
var settingFields = []Field{fCodes | always, fPerCustomer | always, fOpensAt, fClosesAt, fExpiresAt, fValidFor, fLateAfter, fMaxRedemptions,
	fReminders, fPrefix, fCategory, fPriority, fBenefit}

// unsetFields are those that a campaign need not have.
var unsetFields = list(fOpensAt, fClosesAt, fExpiresAt, fValidFor, fLateAfter, fReminders, fPrefix, fCategory, fBenefit)

// settingSet are the same as a set.
var settingSet = fields(settingFields...)

// secretFields are the fields that have a secret.
var secretFields []Field

func init() {
	for f := range fieldSpecs {
		fieldSpecs[f].key = `,"` + fieldSpecs[f].name + `":`
		if fieldSpecs[f].secret != NoSecret {
			secretFields = append(secretFields, Field(f))
		}
	}
}

func (f Field) String() string { return fieldSpecs[f&^always].name }

// fieldNamed is a switch and no map: it runs for every field of every command, and the compiler makes a few comparisons
// of it. A test holds it to the table.
func fieldNamed(name []byte) Field {
	switch string(name) {
	case "id":
		return fID
	case "type":
		return fType
	case "campaign":
		return fCampaign
	case "codes":
		return fCodes
	case "per_customer":
		return fPerCustomer
	case "opens_at":
		return fOpensAt
	case "closes_at":
		return fClosesAt
	case "expires_at":
		return fExpiresAt
	case "valid_for":
		return fValidFor
	case "late_after":
		return fLateAfter
	case "max_redemptions":
		return fMaxRedemptions
	case "reminders":
		return fReminders
	case "prefix":
		return fPrefix
	case "category":
		return fCategory
	case "priority":
		return fPriority
	case "benefit":
		return fBenefit
	case "customer_id":
		return fCustomerID
	case "customer_ids":
		return fCustomerIDs
	case "attributes":
		return fAttributes
	case "code":
		return fCode
	case "order_id":
		return fOrderID
	case "reason":
		return fReason
	case "kind":
		return fKind
	case "before":
		return fBefore
	case "through":
		return fThrough
	case "due_at":
		return fDueAt
	case "through_r":
		return fThroughR
	case "ready_at":
		return fReadyAt
	case "if_version":
		return fIfVersion
	case "weak_codes":
		return fWeakCodes
	case "request_id":
		return fRequestID
	case "at":
		return fAt
	case "number":
		return fNumber
	case "n":
		return fN
	case "redeemed_count":
		return fRedeemedCount
	case "status":
		return fStatus
	case "count":
		return fCount
	case "r":
		return fR
	case "from_r":
		return fFromR
	case "fired":
		return fFired
	case "dropped":
		return fDropped
	case "passed":
		return fPassed
	case "counts":
		return fCounts
	case "sample":
		return fSample
	case "sequence":
		return fSequence
	case "line":
		return fLine
	case "last_sequence":
		return fLastSequence
	case "bytes":
		return fBytes
	case "payload":
		return fPayload
	case "refusal":
		return fRefusal
	case "message":
		return fMessage
	case "repeat":
		return fRepeat
	case "coupon_status":
		return fCouponStatus
	case "replaces":
		return fReplaces
	case "by_n":
		return fByN
	case "zone":
		return fZone
	case "merged":
		return fMerged
	case "withheld":
		return fWithheld
	case "by":
		return fBy
	case "batch":
		return fBatch
	case "from_n":
		return fFromN
	case "through_n":
		return fThroughN
	}
	return fUnknown
}

// fieldSet is a set of fields.
type fieldSet uint64

func (s fieldSet) has(f Field) bool { return s&(1<<(f&^always)) != 0 }
func (s *fieldSet) add(f Field)     { *s |= 1 << (f &^ always) }

// first is the first field of a set that is not empty.
func (s fieldSet) first() Field { return Field(bits.TrailingZeros64(uint64(s))) }

func fields(fs ...Field) (s fieldSet) {
	for _, f := range fs {
		s.add(f)
	}
	return s
}

// appendValue appends a field and its value, which p points to, each field with a comma before it. Without a value the
// field is left out, unless it is marked as always written; a lead time (before) is written even if it is zero.
func appendValue(dst []byte, f Field, p any, cache *LineCache) []byte {
	key := fieldSpecs[f&^always].key
	switch p := p.(type) {
	case *string:
		if f == fCode {
			return cache.codeField(dst, *p)
		}
		return appendStringField(dst, key, *p)
	case *[]byte:
		return appendRawField(dst, key, *p)
	case *uint32:
		return appendUint(dst, f, key, uint64(*p))
	case *uint64:
		return appendUint(dst, f, key, *p)
	case *Instant:
		return cache.field(dst, key, *p)
	case *time.Duration:
		if *p == 0 && f != fBefore {
			return dst
		}
		return append(Period(*p).Append(append(append(dst, key...), '"')), '"')
	case *[]string:
		return appendListField(dst, key, *p, AppendText)
	case *[]uint64:
		return appendListField(dst, key, *p, appendNumber)
	case *[]RefusalCount:
		return append(appendCounts(append(append(dst, key...), '{'), *p), '}')
	case *bool:
		if *p {
			dst = append(append(dst, key...), "true"...)
		}
		return dst
	}
	panic("wire: no value of this type can be written: " + f.String())
}

func appendUint(dst []byte, f Field, key string, v uint64) []byte {
	if v == 0 && f&always == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, key...), v, 10)
}

func appendCounts(dst []byte, counts []RefusalCount) []byte {
	for i, r := range counts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendNumber(append(AppendText(dst, string(r.Refusal)), ':'), r.Count)
	}
	return dst
}

// readValue reads the value of a field of an event or an outcome into what p points to; nil = it is skipped. Texts and
// raw JSON are views of raw. Bounds are not checked: they hold for commands.
func readValue(p any, raw []byte) (err error) {
	switch p := p.(type) {
	case nil:
	case *string:
		*p, err = unquote(raw)
	case *[]byte:
		*p = raw
	case *uint32:
		var n uint64
		if n, err = strconv.ParseUint(View(raw), 10, 32); err == nil {
			*p = uint32(n)
		}
	case *uint64:
		*p, err = strconv.ParseUint(View(raw), 10, 64)
	case *Instant:
		if len(raw) < 2 || raw[0] != '"' {
			return errSyntax
		}
		*p, err = parseStamp(raw[1 : len(raw)-1])
	case *time.Duration:
		var s string
		if s, err = unquote(raw); err == nil {
			*p, err = time.ParseDuration(s)
		}
	case *[]string:
		*p, err = texts(raw)
	case *[]uint64:
		err = json.Unmarshal(raw, p)
	case *[]RefusalCount:
		*p, err = refusals(raw)
	case *bool:
		*p = string(raw) == "true"
	default:
		panic("wire: no value of this type can be read")
	}
	return err
}

// assign copies the value that from points to; both have the same type.
func assign(to, from any) {
	switch to := to.(type) {
	case *string:
		*to = *from.(*string)
	case *[]byte:
		*to = *from.(*[]byte)
	case *uint32:
		*to = *from.(*uint32)
	case *Instant:
		*to = *from.(*Instant)
	case *time.Duration:
		*to = *from.(*time.Duration)
	default:
		panic("wire: no setting has a value of this type")
	}
}
