package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// Defaults fill in what a line may leave out because its subject or endpoint implies it.
type Defaults struct {
	Type     CommandType // what the line must be; NoCommand = any
	Campaign string      // the campaign the line must be for; "" = any
	NoID     bool        // the line may come without an id (the service makes one)
	Body     bool        // the line is the body of an HTTP request, which has id, type, if_version, request_id and Campaign elsewhere
}

// ParseCommand reads one command line into c, which is overwritten and keeps nothing of line. The error is an
// [*InvalidError] naming the field and the fix; what could be read of id, type and campaign is in c even then, so that the
// refusal can name them.
func ParseCommand(line []byte, def Defaults, c *Command) error {
	err := c.ParseView(line, def)
	c.detach()
	return err
}

// ParseView is ParseCommand, but texts in c are views of the line.
func (c *Command) ParseView(line []byte, def Defaults) error {
	*c = Command{}
	if len(line) > MaxLine {
		return malformedf("", "the line has %d bytes, at most %d are allowed", len(line), MaxLine)
	}
	raw := fieldTexts{line: line, simple: simple(line)}
	if !raw.simple && !utf8.Valid(line) {
		return malformedf("", "the line is not valid UTF-8")
	}
	problem := raw.read()
	if raw.given.has(fID) {
		if id, err := raw.text(fID); err == nil && len(id) <= MaxCommandID && (raw.simple || Printable(id)) {
			c.ID = id
		}
	}
	if raw.given.has(fCampaign) {
		if name, err := raw.text(fCampaign); err == nil && ValidCampaignName(name) {
			c.Campaign = name
		}
	}
	if problem != nil {
		return problem
	}
	if extra := raw.given & def.elsewhere(); extra != 0 {
		return malformedf(fieldSpecs[extra.first()].name, "unknown field; remove it")
	}
	if err := c.identify(&raw, def); err != nil {
		return err
	}
	return c.interpret(&raw)
}

// elsewhere are the fields that are not a body's.
func (d *Defaults) elsewhere() fieldSet {
	switch {
	case !d.Body:
		return 0
	case d.Campaign == "":
		return fields(fID, fType, fIfVersion, fRequestID)
	}
	return fields(fID, fType, fIfVersion, fRequestID, fCampaign)
}

// detach copies what are views of the line.
func (c *Command) detach() {
	for text := range c.Texts {
		*text = strings.Clone(*text)
	}
	c.Attributes = bytes.Clone(c.Attributes)
}

// fieldTexts holds the position of each given field's value in a line. No slices: clearing those would cost as much as reading
// the line.
type fieldTexts struct {
	line   []byte
	simple bool // see simple
	given  fieldSet
	at     [numCommandFields]struct{ from, to uint16 } // MaxLine fits
}

// of is the raw value of a field, nil if it was not given.
func (t *fieldTexts) of(f Field) []byte {
	if !t.given.has(f) {
		return nil
	}
	return t.line[t.at[f].from:t.at[f].to]
}

// text is the value of a field that must be a string.
func (t *fieldTexts) text(f Field) (string, error) {
	raw := t.of(f)
	if t.simple && len(raw) >= 2 && raw[0] == '"' {
		return View(raw[1 : len(raw)-1]), nil
	}
	return unquote(raw)
}

// read splits the line into its fields.
func (t *fieldTexts) read() error {
	o := object{data: t.line, simple: t.simple}
	var problem error
	for {
		key, value, done, err := o.next()
		if err != nil {
			return malformedf("", "the line %s", err)
		}
		if done {
			return problem
		}
		f := fieldNamed(key)
		if f == fUnknown || f >= numCommandFields {
			// Continue: the refusal should carry the line's id even if that comes last.
			if problem == nil {
				problem = malformedf("", "unknown field; remove it").got(string(key))
			}
			continue
		}
		if t.given.has(f) && problem == nil {
			problem = malformedf(fieldSpecs[f].name, "given twice; keep one")
		}
		t.given.add(f)
		t.at[f].from, t.at[f].to = uint16(o.pos-len(value)), uint16(o.pos)
	}
}

// identify settles id, type and campaign.
func (c *Command) identify(raw *fieldTexts, def Defaults) error {
	given := raw.given
	if !given.has(fType) {
		if def.Type == NoCommand {
			return malformedf("type", "missing; give one of the commands, such as claim")
		}
		c.Type = def.Type
	} else {
		// Matched exactly, like field names, without escapes: Step.Fits depends on it.
		name := raw.of(fType)
		if len(name) < 2 || name[0] != '"' {
			return malformedf("type", "must be a string")
		}
		name = name[1 : len(name)-1]
		if c.Type = CommandNamed(name); c.Type == NoCommand {
			return malformedf("type", "unknown type; give one of the commands, such as claim").got(string(name))
		}
		if def.Type != NoCommand && c.Type != def.Type {
			return malformedf("type", "%s does not belong here; leave it out or give %s", c.Type, def.Type)
		}
	}
	switch {
	case c.ID != "": // read and checked already
	case given.has(fID):
		id, err := raw.text(fID)
		if err != nil {
			return Invalidf("id", "%s", err)
		}
		if err := fieldSpecs[fID].checkText(id, raw.simple); err != nil {
			return err
		}
	case !def.NoID && !def.Body:
		return malformedf("id", "missing; give each command an id of its own (at most %d bytes), and the same one for a retry", MaxCommandID)
	}
	if given.has(fCampaign) {
		if c.Campaign == "" {
			if _, err := raw.text(fCampaign); err != nil {
				return Invalidf("campaign", "%s", err)
			}
			return Invalidf("campaign", "must be 1 to %d of A-Z a-z 0-9 _ -", MaxCampaignName)
		}
		if def.Campaign != "" && c.Campaign != def.Campaign {
			return Invalidf("campaign", "disagrees with the subject, which has another").got(c.Campaign)
		}
	} else {
		if def.Campaign != "" && !ValidCampaignName(def.Campaign) {
			return Invalidf("campaign", "the subject's must be 1 to %d of A-Z a-z 0-9 _ -", MaxCampaignName)
		}
		c.Campaign = def.Campaign
	}
	return nil
}

// interpret reads the fields that belong to the command's type.
func (c *Command) interpret(raw *fieldTexts) error {
	given := raw.given
	if extra := given &^ allowed[c.Type]; extra != 0 {
		return malformedf(fieldSpecs[extra.first()].name, "does not belong to %s; remove it", c.Type)
	}
	have := given
	if c.Campaign != "" {
		have.add(fCampaign)
	}
	needs := required[c.Type]
	if given.has(fN) {
		if given.has(fCode) {
			return Invalidf("code", OneName)
		}
		needs = needs&^fields(fCode) | fields(fCampaign)
	}
	if missing := needs &^ have; missing != 0 {
		return malformedf(fieldSpecs[missing.first()].name, "missing; %s needs it", c.Type)
	}
	for rest := given &^ general; rest != 0; rest &= rest - 1 {
		f := rest.first()
		if err := c.read(f, raw); err != nil {
			return err
		}
	}
	switch c.Type {
	case ImportCodes:
		for i, s := range c.Codes {
			if err := code.CheckStrong(s); err != nil && !c.WeakCodes {
				return badCode(i, err, " with weak_codes")
			}
		}
	case CreateCampaign:
		c.Patch.given = given & settingSet
		full := c.Patch.Onto(DefaultSettings(0))
		c.Patch.Settings = full
		return full.Check()
	case UpdateCampaign:
		c.Patch.given = given & settingSet
		if c.Patch.given == 0 {
			return Invalidf("", "nothing to update; give at least one setting")
		}
	}
	return nil
}

// read interprets one field by its row in the table of fields.
func (c *Command) read(f Field, of *fieldTexts) error {
	raw, spec := of.of(f), &fieldSpecs[f]
	if commands[c.Type].Settings && settingSet.has(f) && string(raw) == "null" {
		return c.Patch.unset(f)
	}
	switch p := c.at(f).(type) {
	case *string:
		s, err := of.text(f)
		if err != nil {
			return Invalidf(spec.name, "%s", err)
		}
		if *p = s; f == fPrefix {
			*p = strings.ToUpper(s)
		}
		return spec.checkText(s, of.simple)
	case *Instant:
		return spec.readInstant(raw, p)
	case *time.Duration:
		return spec.readDuration(raw, p)
	case *uint64:
		return spec.readNumber(raw, p)
	case *uint32:
		var n uint64
		err := spec.readNumber(raw, &n)
		*p = uint32(n)
		return err
	case *[]string:
		return c.readCodes(raw)
	case *bool:
		if *p = string(raw) == "true"; !*p && string(raw) != "false" {
			return Invalidf(spec.name, "must be true or false")
		}
	case *[]byte:
		if f == fAttributes {
			return c.readAttributes(raw)
		}
		if *p = bytes.Clone(compact(raw)); uint64(len(*p)) > spec.most {
			return Invalidf(spec.name, "must be JSON of at most %d bytes", spec.most)
		}
		if !numbersFit(*p) {
			return Invalidf(spec.name, misfit)
		}
	}
	return nil
}

// unset takes a setting that is given as null back to its default.
func (p *Patch) unset(f Field) error {
	if f == fCodes {
		return Invalidf("codes", "must be a whole number from 0 to %d", MaxCodes)
	}
	defaults := DefaultSettings(0)
	assign(p.at(f), defaults.at(f))
	return nil
}

// readCodes reads the array of an import.
func (c *Command) readCodes(raw []byte) error {
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return Invalidf("codes", "must be an array of at least one code")
	}
	for i, s := range list {
		n, err := code.NormalizeImported(s)
		if err != nil {
			return badCode(i, err, "")
		}
		list[i] = n
	}
	c.Codes = list
	return nil
}

// badCode is what is wrong with one of the codes of an import.
func badCode(i int, err error, more string) error {
	var bad *code.ImportError
	if !errors.As(err, &bad) {
		return Invalidf("codes", "code %d is not valid", i+1)
	}
	return Invalidf("codes", "code %d %s%s", i+1, bad.Problem, more).got(bad.Code)
}

// earliest keeps the due instant of a reminder, up to MaxBefore before a campaign's or coupon's instant, after 1970.
const earliest Instant = 63072000_000000 // 1972-01-01

func (spec *fieldSpec) readInstant(raw []byte, into *Instant) error {
	s, err := unquote(raw)
	if err != nil {
		return Invalidf(spec.name, "must be an RFC 3339 time such as 2026-11-27T00:00:00Z")
	}
	if *into, err = ParseInstant(s); err != nil {
		return Invalidf(spec.name, "%s", err)
	}
	if spec.anchor && *into < earliest {
		return Invalidf(spec.name, "must not lie before 1972")
	}
	return nil
}

func (spec *fieldSpec) readDuration(raw []byte, into *time.Duration) error {
	s, err := unquote(raw)
	if err == nil {
		*into, err = time.ParseDuration(s)
	}
	if err != nil {
		return Invalidf(spec.name, "must be a duration such as 90s, 1m or 72h")
	}
	if least, most := time.Duration(spec.least), time.Duration(spec.most); *into < least || *into > most {
		return Invalidf(spec.name, "must lie between %s and %s", least, most)
	}
	*into = into.Truncate(time.Microsecond)
	return nil
}

func (spec *fieldSpec) readNumber(raw []byte, into *uint64) error {
	v, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || v < spec.least || v > spec.most {
		return Invalidf(spec.name, "must be a whole number from %d to %d", spec.least, spec.most)
	}
	*into = v
	return nil
}

// checkText refuses what is not one of the texts allowed, or is empty, too long or not printable; printable text may be
// known as such.
func (spec *fieldSpec) checkText(s string, known bool) error {
	switch {
	case spec.oneOf != nil:
		if !slices.Contains(spec.oneOf, s) {
			last := len(spec.oneOf) - 1
			return Invalidf(spec.name, "must be %s or %s", strings.Join(spec.oneOf[:last], ", "), spec.oneOf[last])
		}
	case spec.name == "prefix":
		if err := code.ValidPrefix(s); err != nil {
			return Invalidf(spec.name, "%s", err)
		}
	case spec.name == "zone" && !ValidZone(s):
		return Invalidf(spec.name, "must be a name of the IANA database of time zones, such as Europe/Berlin").got(s)
	case spec.name == "batch" && !ValidCampaignName(s): // part of URLs and names of files
		return Invalidf(spec.name, "must be 1 to %d of A-Z a-z 0-9 _ -", MaxBatch)
	case s == "":
		return Invalidf(spec.name, "must not be empty")
	case spec.secret == SecretCode && code.Masked(s):
		return Invalidf(spec.name, MaskedCode)
	case uint64(len(s)) > spec.most:
		return Invalidf(spec.name, "has %d bytes, at most %d are allowed", len(s), spec.most)
	case !known && !Printable(s):
		return Invalidf(spec.name, "must be printable UTF-8 without control characters")
	}
	return nil
}
