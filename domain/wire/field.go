package wire

import (
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
	fThrough
	fDueAt
	fThroughR
	fReadyAt
	fIfVersion
	fWeakCodes
	numCommandFields
)

// The fields that only events and outcomes carry.
const (
	fAt = numCommandFields + iota
	fNumber
	fCodeList // named codes too: the codes themselves, where fCodes is their number
	fRedeemedCount
	fStatus
	fCount
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
	fBy
	numFields

	// always marks, in a list of fields, one that is written even if it is zero.
	always Field = 1 << 7
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
}

var fieldSpecs = [numFields]fieldSpec{
	fID:             {name: "id", most: MaxCommandID},
	fType:           {name: "type"},
	fCampaign:       {name: "campaign", most: MaxCampaignName},
	fCodes:          {name: "codes", most: MaxCodes},
	fPerCustomer:    {name: "per_customer", most: MaxPerCustomer},
	fOpensAt:        {name: "opens_at", anchor: true},
	fClosesAt:       {name: "closes_at", anchor: true},
	fExpiresAt:      {name: "expires_at", anchor: true},
	fValidFor:       {name: "valid_for", least: uint64(time.Second), most: uint64(MaxValidFor)},
	fLateAfter:      {name: "late_after", least: uint64(time.Second), most: uint64(MaxBefore)},
	fMaxRedemptions: {name: "max_redemptions", least: 1, most: MaxRedemptions},
	fReminders:      {name: "reminders", least: 1, most: MaxPending},
	fPrefix:         {name: "prefix"},
	fCategory:       {name: "category", most: MaxCategory},
	fPriority:       {name: "priority", oneOf: []string{PriorityHigh, PriorityNormal, PriorityLow}},
	fBenefit:        {name: "benefit", most: MaxBenefit},
	fCustomerID:     {name: "customer_id", most: MaxCustomerID},
	fAttributes:     {name: "attributes", most: MaxAttributes},
	fCode:           {name: "code", most: MaxCodeInput},
	fN:              {name: "n", least: 1, most: MaxCodes},
	fOrderID:        {name: "order_id", most: MaxOrderID},
	fReason:         {name: "reason", most: MaxReason},
	fKind:           {name: "kind", oneOf: []string{KindOpens, KindExpires}},
	fBefore:         {name: "before", most: uint64(MaxBefore)},
	fThrough:        {name: "through"},
	fDueAt:          {name: "due_at"},
	fThroughR:       {name: "through_r", least: 1, most: 1 << 53},
	fReadyAt:        {name: "ready_at"},
	fIfVersion:      {name: "if_version", most: MaxVersion},
	fWeakCodes:      {name: "weak_codes"},
	fAt:             {name: "at"},
	fNumber:         {name: "number", most: math.MaxUint32},
	fCodeList:       {name: "codes"},
	fRedeemedCount:  {name: "redeemed_count", most: math.MaxUint32},
	fStatus:         {name: "status"},
	fCount:          {name: "count"},
	fR:              {name: "r"},
	fFromR:          {name: "from_r"},
	fFired:          {name: "fired"},
	fDropped:        {name: "dropped"},
	fPassed:         {name: "passed"},
	fCounts:         {name: "counts"},
	fSample:         {name: "sample"},
	fSequence:       {name: "sequence"},
	fLine:           {name: "line", most: math.MaxUint32},
	fLastSequence:   {name: "last_sequence"},
	fBytes:          {name: "bytes"},
	fPayload:        {name: "payload"},
	fRefusal:        {name: "refusal"},
	fMessage:        {name: "message"},
	fRepeat:         {name: "repeat"},
	fCouponStatus:   {name: "coupon_status"},
	fReplaces:       {name: "replaces", most: math.MaxUint32},
	fByN:            {name: "by_n"},
	fBy:             {name: "by"},
}

// general are the fields of all commands.
var general = fields(fID, fType, fCampaign)

// settingFields are those of a campaign's settings, in the order in which they are written.
var settingFields = []Field{fCodes | always, fPerCustomer | always, fOpensAt, fClosesAt, fExpiresAt, fValidFor, fLateAfter, fMaxRedemptions,
	fReminders, fPrefix, fCategory, fPriority, fBenefit}

// settingSet are the same as a set.
var settingSet = fields(settingFields...)

func init() {
	for f := range fieldSpecs {
		fieldSpecs[f].key = `,"` + fieldSpecs[f].name + `":`
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
	case "by":
		return fBy
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
		return AppendText(append(dst, key...), p.String())
	case *[]string:
		return appendTextsField(dst, key, *p)
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
