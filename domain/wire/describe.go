package wire

import "time"

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

// Describe returns the fields of a command beside id and type.
func (t CommandType) Describe() (all []Description) {
	c := Command{Type: t}
	for rest := allowed[t] &^ fields(fID, fType); rest != 0; rest &= rest - 1 {
		f := rest.first()
		d := f.describe(c.at(f))
		d.Required = required[t].has(f) && (f != fCode || !allowed[t].has(fN))
		d.Nullable = t == UpdateCampaign && settingSet.has(f) && f != fCodes
		all = append(all, d)
	}
	return all
}

// DescribeOutcome returns the fields of outcomes. The bounds of commands do not hold for them.
func DescribeOutcome() (all []Description) {
	var o Outcome
	for _, f := range outcomeFields {
		d := f.describe(o.at(f))
		all = append(all, Description{Name: d.Name, About: d.About, Value: d.Value, Required: f == fStatus})
	}
	return all
}

// About is what a document has of the field with that name, "" if there is none.
func About(name string) string { return fieldSpecs[fieldNamed([]byte(name))].about }

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
	case *[]byte:
		d.Value, d.Bytes = JSONValue, spec.most
	default:
		d.Bytes = spec.most
	}
	return d
}
