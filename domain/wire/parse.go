package wire

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Defaults fill in what a line may leave out because its subject or endpoint implies it.
type Defaults struct {
	Type     CommandType // what the line must be; NoCommand = any
	Campaign string      // the campaign the line must be for; "" = any
	NoID     bool        // the line may come without an id (the service makes one)
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
		return Invalidf("", "the line has %d bytes, at most %d are allowed", len(line), MaxLine)
	}
	raw := fieldTexts{line: line, simple: simple(line)}
	if !raw.simple && !utf8.Valid(line) {
		return Invalidf("", "the line is not valid UTF-8")
	}
	problem := raw.read()
	if raw.given.has(fID) {
		if id, err := raw.text(fID); err == nil && len(id) <= MaxCommandID && (raw.simple || printable(id)) {
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
	if err := c.identify(&raw, def); err != nil {
		return err
	}
	return c.interpret(&raw)
}

// detach copies what are views of the line.
func (c *Command) detach() {
	for _, s := range [...]*string{
		&c.ID, &c.Campaign, &c.CustomerID, &c.Code, &c.OrderID, &c.Reason, &c.Kind,
		&c.Patch.Prefix, &c.Patch.Category, &c.Patch.Priority,
	} {
		*s = strings.Clone(*s)
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
			return Invalidf("", "the line %s", err)
		}
		if done {
			return problem
		}
		f := fieldNamed(key)
		if f == fUnknown || f >= numCommandFields {
			// Continue: the refusal should carry the line's id even if that comes last.
			if problem == nil {
				problem = Invalidf(shorten(string(key), 64), "unknown field; remove it")
			}
			continue
		}
		if t.given.has(f) && problem == nil {
			problem = Invalidf(fieldSpecs[f].name, "given twice; keep one")
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
			return Invalidf("type", "missing; give one of the commands, such as claim")
		}
		c.Type = def.Type
	} else {
		// Matched exactly, like field names, without escapes: Step.Fits depends on it.
		name := raw.of(fType)
		if len(name) < 2 || name[0] != '"' {
			return Invalidf("type", "must be a string")
		}
		name = name[1 : len(name)-1]
		if c.Type = CommandNamed(name); c.Type == NoCommand {
			return Invalidf("type", "unknown type %q; give one of the commands, such as claim", shorten(string(name), 32))
		}
		if def.Type != NoCommand && c.Type != def.Type {
			return Invalidf("type", "%s does not belong here; leave it out or give %s", c.Type, def.Type)
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
	case !def.NoID:
		return Invalidf("id", "missing; give each command an id of its own (at most %d bytes), and the same one for a retry", MaxCommandID)
	}
	if given.has(fCampaign) {
		if c.Campaign == "" {
			if _, err := raw.text(fCampaign); err != nil {
				return Invalidf("campaign", "%s", err)
			}
			return Invalidf("campaign", "must be 1 to %d of A-Z a-z 0-9 _ -", MaxCampaignName)
		}
		if def.Campaign != "" && c.Campaign != def.Campaign {
			return Invalidf("campaign", "%s disagrees with the subject, which has %s", c.Campaign, def.Campaign)
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
		return Invalidf(fieldSpecs[extra.first()].name, "does not belong to %s; remove it", c.Type)
	}
	have := given
	if c.Campaign != "" {
		have.add(fCampaign)
	}
	if missing := required[c.Type] &^ have; missing != 0 {
		return Invalidf(fieldSpecs[missing.first()].name, "missing; %s needs it", c.Type)
	}
	for rest := given &^ general; rest != 0; rest &= rest - 1 {
		f := rest.first()
		if err := c.read(f, raw); err != nil {
			return err
		}
	}
	switch c.Type {
	case CreateCampaign:
		c.Patch.given = given & fields(settingFields...)
		full := c.Patch.Onto(DefaultSettings(0))
		c.Patch.Settings = full
		return full.Check()
	case UpdateCampaign:
		c.Patch.given = given & fields(settingFields...)
		if c.Patch.given == 0 {
			return Invalidf("", "nothing to update; give at least one setting")
		}
	}
	return nil
}
