package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// settingsOf are the settings of campaigns.
var settingsOf = slices.DeleteFunc(wire.CreateCampaign.Describe(), func(d wire.Description) bool { return d.Name == "campaign" })

// cloneRequest is the request of campaign.clone: a struct with a field for each setting that may differ.
var cloneRequest = func() reflect.Type {
	all := []reflect.StructField{
		{Name: "Campaign", Type: reflect.TypeFor[string](), Tag: `json:"campaign" doc:"The source."`},
		{Name: "To", Type: reflect.TypeFor[string](), Tag: `json:"to" doc:"The name of the new campaign."`},
	}
	kinds := map[wire.Value]reflect.Type{wire.NumberValue: reflect.TypeFor[int](), wire.InstantValue: reflect.TypeFor[time.Time](), wire.JSONValue: reflect.TypeFor[json.RawMessage]()}
	for _, d := range settingsOf {
		kind := kinds[d.Value]
		if kind == nil {
			kind = reflect.TypeFor[string]()
		}
		tag := fmt.Sprintf("json:%q doc:%q", d.Name+",omitempty", d.About)
		all = append(all, reflect.StructField{Name: "S_" + d.Name, Type: kind, Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(all)
}()

// cloneAction is the row of campaign.clone.
func cloneAction() Action {
	a := Action{Name: "campaign.clone", Operation: access.OpCreateCampaign, Fields: FieldsOf(cloneRequest), Most: wire.MaxLine,
		Request: cloneRequest, Answer: reflect.TypeFor[domain.CampaignView](), repeatable: true}
	a.call = func(o *Ops, ctx context.Context, who Caller, fields Fields) (any, error) {
		given := maps.Clone(fields)
		maps.DeleteFunc(given, func(name string, value json.RawMessage) bool { return string(value) == "null" }) // back to the default
		q := reflect.New(cloneRequest)
		if err := given.Read(q.Interface(), a.Fields); err != nil {
			return nil, err
		}
		settings := maps.Clone(fields)
		delete(settings, "campaign")
		delete(settings, "to")
		return o.cloneCampaign(ctx, who, q.Elem().FieldByName("Campaign").String(), q.Elem().FieldByName("To").String(), settings)
	}
	return a
}

// cloneCampaign creates a campaign with the settings of another one, but those that are given. Imported codes are not copied. A time
// of the source that has passed is refused as in create_campaign, unless it is given, too.
func (o *Ops) cloneCampaign(ctx context.Context, who Caller, from, to string, given Fields) (any, error) {
	if err := who.Check(access.OpCreateCampaign, to); err != nil {
		return nil, err
	}
	source, err := o.Queries.Campaign(ctx, from)
	if err != nil {
		return nil, found(err)
	}
	if source.Imported {
		source.Codes = 0
	}
	line := settingsIn(&source)
	// An end and a life time exclude each other: giving the one replaces the other.
	for _, pair := range [][2]string{{"expires_at", "valid_for"}, {"valid_for", "expires_at"}} {
		if one := given[pair[0]]; one != nil && string(one) != "null" && given[pair[1]] == nil {
			delete(line, pair[1])
		}
	}
	maps.Copy(line, given)
	line["campaign"], _ = json.Marshal(to)
	text, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	var cmd wire.Command
	if err := wire.ParseCommand(text, wire.Defaults{Type: wire.CreateCampaign, NoID: true}, &cmd); err != nil {
		return nil, refusedSetting(wire.Invalid, err.Error())
	}
	cmd.ID, cmd.RequestID = "clone-"+nameOf(who), who.Request
	wait := command.NewWaiter()
	ticket, err := o.Lanes.Send(ctx, &cmd, command.Call{By: who.By(), To: wait})
	out, err := wait.Wait(ctx, cmd.ID, ticket, err)
	switch {
	case err != nil:
		return nil, err
	case out.Refused():
		return nil, refusedSetting(out.Refusal, out.Message)
	}
	view, err := o.Queries.Campaign(ctx, to)
	if err != nil {
		return nil, &Refusal{Code: UnknownOutcome, Message: "it was done, but the campaign cannot be read at the moment: " + err.Error()}
	}
	if out.Repeat {
		body, err := json.Marshal(view)
		return &Replayed{view, body}, err
	}
	return view, nil
}

// refusedSetting is a refusal whose message starts with the field that is wrong, if there is one.
func refusedSetting(why wire.Refusal, message string) *Refusal {
	field, _, _ := strings.Cut(message, ":")
	switch {
	case field == "campaign":
		field = "to"
	case !slices.ContainsFunc(settingsOf, func(d wire.Description) bool { return d.Name == field }):
		field = ""
	}
	return &Refusal{Code: why, Field: field, Message: message}
}

// settingsIn are the settings of a campaign that have a value.
func settingsIn(v *domain.CampaignView) Fields {
	all, settings := Fields{}, Fields{}
	text, _ := json.Marshal(v) // never fails
	_ = json.Unmarshal(text, &all)
	for _, d := range settingsOf {
		if all[d.Name] != nil {
			settings[d.Name] = all[d.Name]
		}
	}
	return settings
}

// TwoCampaigns names two campaigns that are compared.
type TwoCampaigns struct {
	Campaign string `json:"campaign" doc:"The name of the one."`
	With     string `json:"with" doc:"The name of the other."`
}

// SettingDiff is a setting that has two values. One that is absent is the default.
type SettingDiff struct {
	Setting  string          `json:"setting"`
	Campaign json.RawMessage `json:"campaign,omitempty"`
	With     json.RawMessage `json:"with,omitempty"`
}

// Changes are the histories of campaigns in the read tables.
type Changes interface {
	Changes(ctx context.Context, q ListChangesOf) (Page[CampaignChange], error)
}

// ListChangesOf is a page of what changed a campaign.
type ListChangesOf struct {
	Campaign string `json:"campaign" doc:"Its name."`
	Paging
}

// CampaignChange is an event that changed a campaign.
type CampaignChange struct {
	At        time.Time      `json:"at"`
	Type      string         `json:"type" doc:"Of the event, such as campaign.updated."`
	By        string         `json:"by,omitempty" doc:"The person who did it; absent = a program, or nobody."`
	ID        string         `json:"id,omitempty" doc:"Of the command."`
	RequestID string         `json:"request_id,omitempty"`
	Settings  []SettingDelta `json:"settings,omitempty" doc:"Of campaign.updated: those that it changed."`
	Note      string         `json:"note,omitempty" doc:"Why there is no more: the log could not be read."`
	Lane      int            `json:"lane"`
	Sequence  uint64         `json:"sequence"`
	Line      int            `json:"line"`
}

// SettingDelta is a setting that was changed. One that is absent is the default.
type SettingDelta struct {
	Setting string          `json:"setting"`
	Was     json.RawMessage `json:"was,omitempty"`
	Is      json.RawMessage `json:"is,omitempty"`
}

// ChangedSettings are the settings that two events of a campaign have different.
func ChangedSettings(was, is *wire.Event) (all []SettingDelta) {
	a, b := settingsOfEvent(was), settingsOfEvent(is)
	for _, d := range settingsOf {
		if !bytes.Equal(a[d.Name], b[d.Name]) {
			all = append(all, SettingDelta{d.Name, a[d.Name], b[d.Name]})
		}
	}
	return all
}

func settingsOfEvent(e *wire.Event) Fields {
	text := e.Settings.Append(nil) // each with a comma before it
	if len(text) == 0 {
		return nil
	}
	text[0] = '{'
	fields, _ := ParseFields(append(text, '}')) // it was written here
	return fields
}

// ListChangesOf lists what changed a campaign, newest first.
func (o *Ops) ListChangesOf(ctx context.Context, _ Caller, q ListChangesOf) (Page[CampaignChange], error) {
	switch {
	case !wire.ValidCampaignName(q.Campaign):
		return Page[CampaignChange]{}, invalid("campaign", "must be the name of a campaign")
	case o.Changes == nil:
		return Page[CampaignChange]{}, ErrNoTables
	}
	if _, err := o.Queries.Campaign(ctx, q.Campaign); err != nil {
		return Page[CampaignChange]{}, found(err)
	}
	return o.Changes.Changes(ctx, q)
}

// DiffCampaigns lists the settings in which two campaigns differ, in the order in which settings are listed.
func (o *Ops) DiffCampaigns(ctx context.Context, who Caller, q TwoCampaigns) (out Page[SettingDiff], err error) {
	var settings [2]Fields
	for i, name := range []string{q.Campaign, q.With} {
		if err := who.Check(access.OpReadStatistics, name); err != nil {
			return out, err
		}
		v, err := o.Queries.Campaign(ctx, name)
		if err != nil {
			return out, found(err)
		}
		settings[i] = settingsIn(&v)
	}
	for _, d := range settingsOf {
		if a, b := settings[0][d.Name], settings[1][d.Name]; !bytes.Equal(a, b) {
			out.Items = append(out.Items, SettingDiff{d.Name, a, b})
		}
	}
	return out, nil
}
