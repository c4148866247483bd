package domain

import (
	"unicode/utf8"
)

// allowed and required say which fields each command takes; id and type go without saying.
var allowed, required [numCommands]fieldSet

func init() {
	settings := fields(settingFields...)
	customer := fields(fCampaign, fCustomerID)
	coupon := fields(fCampaign, fCode)
	set := func(t CommandType, may, must fieldSet) {
		allowed[t] = may | must | fields(fID, fType, fCampaign)
		required[t] = must
	}
	set(CreateCampaign, settings, fields(fCampaign, fCodes))
	set(UpdateCampaign, settings, fields(fCampaign))
	set(PauseCampaign, 0, fields(fCampaign))
	set(ResumeCampaign, 0, fields(fCampaign))
	set(EndCampaign, 0, fields(fCampaign))
	set(ImportCodes, 0, fields(fCampaign, fCodes))
	set(Claim, fields(fAttributes), customer)
	set(Redeem, coupon|fields(fCustomerID), fields(fCode, fOrderID))
	set(Rollback, coupon|fields(fCustomerID), fields(fCode, fOrderID))
	set(Void, coupon|fields(fReason), fields(fCode))
	set(Extend, coupon, fields(fCode, fExpiresAt))
	set(Remind, 0, customer|fields(fKind, fBefore))
	set(Unremind, 0, customer|fields(fKind, fBefore))
	set(Expire, 0, fields(fCampaign, fThrough))
	set(RemindDue, 0, fields(fCampaign, fKind, fDueAt, fThroughR))
}

// Defaults fill in what a line may leave out because its subject or endpoint says it.
type Defaults struct {
	Type     CommandType // what the line must be; NoCommand = the line says
	Campaign string      // the campaign the line must be for; "" = the line says
	NoID     bool        // the line may come without an id (the service makes one)
}

// ParseCommand reads one command line into c, which is overwritten. The error is an [*InvalidError] naming the field
// and the fix; what could be read of id, type and campaign is in c even then, so that the refusal can name them.
func ParseCommand(line []byte, def Defaults, c *Command) error {
	*c = Command{}
	if len(line) > MaxLine {
		return invalid("", "the line has %d bytes, at most %d are allowed", len(line), MaxLine)
	}
	if !utf8.Valid(line) {
		return invalid("", "the line is not valid UTF-8")
	}
	var raw [numFields][]byte
	var given fieldSet
	problem := readFields(line, &raw, &given)
	if raw[fID] != nil {
		if id, err := unquote(raw[fID]); err == nil && len(id) <= MaxCommandID && printable(id) {
			c.ID = id
		}
	}
	if raw[fCampaign] != nil {
		if name, err := unquote(raw[fCampaign]); err == nil && ValidCampaignName(name) {
			c.Campaign = name
		}
	}
	if problem != nil {
		return problem
	}
	if err := c.identify(&raw, given, def); err != nil {
		return err
	}
	return c.interpret(&raw, given)
}

// readFields splits a line into its fields.
func readFields(line []byte, raw *[numFields][]byte, given *fieldSet) error {
	o := object{data: line}
	var problem error
	for {
		key, value, done, err := o.next()
		if err != nil {
			return invalid("", "the line %s", err)
		}
		if done {
			return problem
		}
		f := fieldNamed(key)
		if f == fUnknown {
			// Read on: the refusal should carry the line's id even if that comes last.
			if problem == nil {
				problem = invalid(shorten(string(key), 64), "unknown field; remove it")
			}
			continue
		}
		if given.has(f) && problem == nil {
			problem = invalid(fieldNames[f], "given twice; keep one")
		}
		given.add(f)
		raw[f] = value
	}
}

// identify settles id, type and campaign.
func (c *Command) identify(raw *[numFields][]byte, given fieldSet, def Defaults) error {
	if !given.has(fType) {
		if def.Type == NoCommand {
			return invalid("type", "missing; give one of the commands, such as claim")
		}
		c.Type = def.Type
	} else {
		// To the letter, like field names: no escapes. Step.Fits counts on it.
		name := raw[fType]
		if len(name) < 2 || name[0] != '"' {
			return invalid("type", "must be a string")
		}
		name = name[1 : len(name)-1]
		if c.Type = commandNamed(name); c.Type == NoCommand {
			return invalid("type", "unknown type %q; give one of the commands, such as claim", shorten(string(name), 32))
		}
		if def.Type != NoCommand && c.Type != def.Type {
			return invalid("type", "%s does not belong here; leave it out or give %s", c.Type, def.Type)
		}
	}
	switch {
	case c.ID != "": // read and checked already
	case given.has(fID):
		id, err := unquote(raw[fID])
		if err != nil {
			return invalid("id", "%s", err)
		}
		if err := checkText("id", id, MaxCommandID); err != nil {
			return err
		}
	case !def.NoID:
		return invalid("id", "missing; give each command an id of its own (at most %d bytes), and the same one when asking again", MaxCommandID)
	}
	if given.has(fCampaign) {
		if c.Campaign == "" {
			if _, err := unquote(raw[fCampaign]); err != nil {
				return invalid("campaign", "%s", err)
			}
			return invalid("campaign", "must be 1 to %d of A-Z a-z 0-9 _ -", MaxCampaignName)
		}
		if def.Campaign != "" && c.Campaign != def.Campaign {
			return invalid("campaign", "%s disagrees with the subject, which says %s", c.Campaign, def.Campaign)
		}
	} else {
		if def.Campaign != "" && !ValidCampaignName(def.Campaign) {
			return invalid("campaign", "the subject's must be 1 to %d of A-Z a-z 0-9 _ -", MaxCampaignName)
		}
		c.Campaign = def.Campaign
	}
	return nil
}

// interpret reads the fields that belong to the command's type.
func (c *Command) interpret(raw *[numFields][]byte, given fieldSet) error {
	if extra := given &^ allowed[c.Type]; extra != 0 {
		return invalid(fieldNames[extra.first()], "does not belong to %s; remove it", c.Type)
	}
	have := given
	if c.Campaign != "" {
		have.add(fCampaign)
	}
	if missing := required[c.Type] &^ have; missing != 0 {
		return invalid(fieldNames[missing.first()], "missing; %s needs it", c.Type)
	}
	for f := fCodes; f < numFields; f++ {
		if !given.has(f) {
			continue
		}
		if err := c.read(f, raw[f]); err != nil {
			return err
		}
	}
	switch c.Type {
	case CreateCampaign:
		c.Patch.given = given & fields(settingFields...)
		full := c.Patch.onto(defaultSettings())
		c.Patch.Settings = full
		return full.check()
	case UpdateCampaign:
		c.Patch.given = given & fields(settingFields...)
		if c.Patch.given == 0 {
			return invalid("", "nothing to update; give at least one setting")
		}
	}
	return nil
}

func (s fieldSet) first() field {
	for f := fID; f < numFields; f++ {
		if s.has(f) {
			return f
		}
	}
	return fUnknown
}
