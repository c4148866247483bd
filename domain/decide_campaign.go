package domain

import (
	"fmt"
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// create makes a campaign. The same settings again are a repeat.
func (d *decision) create() {
	s := d.cmd.Patch.Onto(wire.DefaultSettings(0))
	arg := d.lane.settingsHash(&s)
	if d.c = d.lane.find(d.cmd.Campaign); d.c != nil {
		act, known := d.c.seenAct(d.id)
		switch {
		case known && (act == nil || act.kind != wire.CreateCampaign || act.arg != arg):
			d.reused()
		case known || s.Equal(d.c.settings):
			d.campaignOutcome(wire.StatusCreated, true)
		default:
			d.refuse(wire.CampaignExists, d.text("a campaign ", d.c.name, " with other settings exists; update it or choose another name"))
		}
		return
	}
	number, ok := d.lane.nextNumber()
	err := s.Check()
	switch {
	case err != nil:
		d.refuse(wire.Invalid, err.Error())
		return
	case !ok:
		d.refuse(wire.Invalid, "campaign: this lane can hold no more campaigns")
		return
	case s.ExpiresAt != 0 && s.ExpiresAt <= d.now:
		d.refuse(wire.Invalid, d.textTime("expires_at: must lie in the future; it is ", d.now, " now"))
		return
	case s.Closes() <= d.now:
		d.refuse(wire.Invalid, d.textTime("closes_at: must lie in the future; it is ", d.now, " now"))
		return
	}
	d.events = append(d.events, wire.Event{Type: wire.CampaignCreated, Campaign: d.cmd.Campaign, At: d.now, ID: d.cmd.ID, Number: number, Settings: s})
	d.apply()
	d.c = d.lane.find(d.cmd.Campaign)
	d.campaignOutcome(wire.StatusCreated, false)
}

// campaignOutcome fills in the fields of every outcome of a campaign.
func (d *decision) campaignOutcome(status string, repeat bool) {
	d.out.Status, d.out.Campaign, d.out.Repeat = status, d.c.name, repeat
}

// update changes settings.
func (d *decision) update() {
	if !d.campaign() {
		return
	}
	c := d.c
	s := d.cmd.Patch.Onto(*c.settings)
	if act, known := c.seenAct(d.id); known {
		if act == nil || act.kind != wire.UpdateCampaign {
			d.reused()
		} else if s.Equal(c.settings) {
			d.campaignOutcome(wire.StatusUpdated, true)
		} else {
			d.refuse(wire.Outdated, "the settings of this update are not in force: the campaign was changed since, or the id was used with others; update with a new id")
		}
		return
	}
	switch err := s.Check(); {
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case err != nil:
		d.refuse(wire.Invalid, err.Error())
	case c.imported != nil && s.Codes != 0:
		d.refuse(wire.Invalid, d.text("codes: the codes of ", c.name, " are imported; import more instead"))
	case c.imported == nil && s.Codes < c.settings.Codes:
		d.refuse(wire.Invalid, d.textNumber("codes: may only grow; the campaign has ", c.settings.Codes, ""))
	case s.ExpiresAt != c.settings.ExpiresAt && s.ExpiresAt != 0 && s.ExpiresAt <= d.now:
		// One watermark per campaign covers what has expired: no expiry may move before it.
		d.refuse(wire.Invalid, d.textTime("expires_at: must lie in the future; it is ", d.now, " now"))
	case s.Equal(c.settings):
		d.campaignOutcome(wire.StatusUpdated, true)
	case !d.hasVersion():
	default:
		ev := d.emit(wire.CampaignUpdated)
		ev.Number, ev.Settings = c.number, s
		d.apply()
		d.campaignOutcome(wire.StatusUpdated, false)
	}
}

// changeState pauses, resumes or ends a campaign. A command for the state it is in is a repeat.
func (d *decision) changeState() {
	if !d.campaign() {
		return
	}
	c := d.c
	var to campaignState
	var event wire.EventType
	var status string
	switch d.cmd.Type {
	case wire.PauseCampaign:
		to, event, status = paused, wire.CampaignPausedEvent, wire.StatusPaused
	case wire.ResumeCampaign:
		to, event, status = active, wire.CampaignResumed, wire.StatusResumed
	case wire.EndCampaign:
		to, event, status = ended, wire.CampaignEndedEvent, wire.StatusEnded
	}
	act, known := c.seenAct(d.id)
	switch {
	case known && (act == nil || act.kind != d.cmd.Type):
		d.reused()
	case c.state == to:
		d.campaignOutcome(status, true)
	case known:
		d.refuse(wire.Outdated, d.text("the campaign was changed since, it is ", c.state.String(), "; give the command a new id"))
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case !d.hasVersion():
	default:
		d.emit(event)
		d.apply()
		d.campaignOutcome(status, false)
	}
}

// hasVersion checks the version that the command requires of its campaign, or refuses. It is the last check: a command that
// changes nothing is a repeat whatever it requires, so one that is sent again without its id still gets its first answer.
func (d *decision) hasVersion() bool {
	want := d.cmd.IfVersion
	if want == "" || want == d.lane.version(d.c) {
		return true
	}
	d.refuse(wire.VersionMismatch, d.text("if_version: the campaign was changed since; its version is ", d.lane.version(d.c), " now"))
	return false
}

// version identifies the settings and the state of a campaign: it changes when an operator changes one of them, and with them
// back it is what it was. It is a keyed hash, equal on all servers of a log; it is stored nowhere.
func (l *Lane) version(c *campaign) string {
	text := c.settings.Append(strconv.AppendUint(nil, uint64(c.number), 10))
	return fmt.Sprintf("%016x", l.hash.text(string(append(text, c.state.String()...))))
}

// importCodes adds codes to a campaign of imported codes. Codes that it has already are left out and not counted.
func (d *decision) importCodes() {
	if !d.campaign() {
		return
	}
	c := d.c
	act, known := c.seenAct(d.id)
	switch {
	case known && (act == nil || act.kind != wire.ImportCodes):
		d.reused()
		return
	case known:
		d.campaignOutcome(wire.StatusImported, true)
		d.out.Count = uint64(act.count)
		return
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
		return
	case c.imported == nil:
		d.refuse(wire.Invalid, d.text("campaign: the codes of ", c.name, " are generated; create it with codes 0 to import them"))
		return
	}
	fresh := make([]string, 0, len(d.cmd.Codes))
	within := make(map[string]bool, len(d.cmd.Codes))
	for _, text := range d.cmd.Codes {
		folded := code.FoldImported(text)
		if _, there := c.imported.find(text); !there && !within[folded] {
			within[folded] = true
			fresh = append(fresh, text)
		}
	}
	if len(fresh) == 0 {
		d.campaignOutcome(wire.StatusImported, true)
		return
	}
	if uint64(c.imported.len())+uint64(len(fresh)) > wire.MaxCodes || len(c.imported.blocks) == maxImportedBlocks {
		d.refuse(wire.Invalid, "codes: the campaign can hold no more codes")
		return
	}
	d.emit(wire.CodesImported).Codes = fresh
	d.apply()
	d.campaignOutcome(wire.StatusImported, false)
	d.out.Count = uint64(len(fresh))
}
