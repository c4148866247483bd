package wire

import (
	"slices"
	"strings"
	"time"
)

// ContractVersion is the version of CONTRACT.md, and of documents made from these tables.
const ContractVersion = "1.0"

// Value is what JSON the value of a field is.
type Value uint8

// The values.
const (
	TextValue     Value = iota
	NumberValue         // a whole number, not negative
	InstantValue        // a text: RFC 3339
	DurationValue       // a text: a Go duration
	FlagValue           // true or false
	TextsValue          // an array of texts
	JSONValue           // any
	CountsValue         // an object: how many, by refusal
)

// Description is what a document has of a field. It follows from the tables of commands, events, outcomes and fields.
type Description struct {
	Name, About string
	Value       Value
	Least, Most uint64   // of a number
	Bytes       uint64   // at most, of a text or of JSON; 0 = no bound
	OneOf       []string // the texts allowed; nil = any
	Required    bool
	Nullable    bool // null takes it back to its default
}

// Describe returns the fields of a command beside id, type and request_id.
func (t CommandType) Describe() (all []Description) {
	c := Command{Type: t}
	for rest := allowed[t] &^ fields(fID, fType, fRequestID); rest != 0; rest &= rest - 1 {
		f := rest.first()
		d := f.describe(c.at(f))
		d.Required = required[t].has(f) && (f != fCode || !allowed[t].has(fN))
		d.Nullable = t == UpdateCampaign && settingSet.has(f) && f != fCodes
		all = append(all, d)
	}
	return all
}

// DescribeOutcome returns the fields of the outcome of a command that was done, or of all outcomes for NoCommand. The bounds of
// commands do not hold for them.
func (t CommandType) DescribeOutcome() (all []Description) {
	answer := &answers[t]
	must, may := fields(answer.has...)|fields(fID, fStatus, fCampaign), fields(answer.may...)|fields(fRepeat)
	var o Outcome
	for _, f := range outcomeFields {
		d := f.describe(o.at(f)).plain()
		if d.Required = must.has(f) && t != NoCommand; f == fStatus {
			d.OneOf, d.About = t.statuses(), "What was done."
		}
		if t == NoCommand || must.has(f) || may.has(f) {
			all = append(all, d)
		}
	}
	return all
}

// statuses are those of its outcome when it is done; of NoCommand those of all outcomes.
func (t CommandType) statuses() (all []string) {
	if t != NoCommand {
		return []string{commands[t].Status}
	}
	for c := range Commands() {
		all = append(all, commands[c].Status)
	}
	slices.Sort(all)
	return append(slices.Compact(all), StatusRefused)
}

// Describe returns the fields of an event beside type.
func (t EventType) Describe() (all []Description) {
	e, spec := Event{Type: t}, &events[t]
	optional := fields(spec.Optional...) | fields(fID, fBy, fRequestID)
	if spec.About == AboutLane {
		optional.add(fCampaign)
	}
	for _, f := range append(append(list(fCampaign, fAt, fID), spec.Fields...), fBy, fRequestID) {
		switch f {
		case fCustomerIDs:
			f = fCustomerID
		case fRList:
			f = fR
		}
		d := (f &^ always).describe(e.at(f)).plain()
		d.Required = !optional.has(f)
		all = append(all, d)
	}
	return all
}

// plain is d without what holds for commands only: the bounds, and the description after its first sentence.
func (d Description) plain() Description {
	about, _, more := strings.Cut(d.About, ". ")
	if more {
		about += "."
	}
	return Description{Name: d.Name, About: about, Value: d.Value, OneOf: d.OneOf}
}

// About is what a document has of the field with that name, "" if there is none.
func About(name string) string { return fieldSpecs[fieldNamed([]byte(name))].about }

// OneOf returns the texts that the field with that name may have, nil = any, or there is none.
func OneOf(name string) []string { return fieldSpecs[fieldNamed([]byte(name))].oneOf }

// describe is the description of a field whose value p points to.
func (f Field) describe(p any) Description {
	spec := &fieldSpecs[f]
	d := Description{Name: spec.name, About: spec.about, OneOf: spec.oneOf}
	switch p.(type) {
	case *uint32, *uint64:
		d.Value, d.Least, d.Most = NumberValue, spec.least, spec.most
	case *Instant:
		d.Value = InstantValue
	case *time.Duration:
		d.Value = DurationValue
	case *bool:
		d.Value = FlagValue
	case *[]string:
		d.Value = TextsValue
	case *[]RefusalCount:
		d.Value = CountsValue
	case *[]byte:
		d.Value, d.Bytes = JSONValue, spec.most
	default:
		d.Bytes = spec.most
	}
	return d
}
