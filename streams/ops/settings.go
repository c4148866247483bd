package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// GetSettings selects settings.
type GetSettings struct {
	Setting string `json:"setting,omitempty" doc:"Its name; absent = all."`
}

// SettingsPage are settings in force.
type SettingsPage struct {
	Settings settings.Object  `json:"settings"`
	Details  []settings.Value `json:"details" nullable:"false" doc:"The same, with who set them; a pause that has its default is left out."`
	Version  uint64           `json:"version" doc:"Of the last change."`
	Ignored  int              `json:"ignored" doc:"Changes that are not valid, or of a newer version."`
}

// GetSettings reads the settings in force.
func (o *Ops) GetSettings(ctx context.Context, _ Caller, q GetSettings) (SettingsPage, error) {
	state, err := o.Settings.Read(ctx)
	if err != nil {
		return SettingsPage{}, err
	}
	page := SettingsPage{Details: state.Values(), Version: state.Revision, Ignored: state.Ignored}
	if q.Setting != "" {
		v, err := state.Value(q.Setting)
		if err != nil {
			return SettingsPage{}, &Refusal{Code: wire.Invalid, Field: "setting", Message: err.Error()}
		}
		page.Details = []settings.Value{v}
	}
	page.Settings = settings.ObjectOf(page.Details)
	return page, nil
}

// ListChanges selects changes of settings.
type ListChanges struct {
	Setting string `json:"setting,omitempty" doc:"Its name; absent = all."`
	Paging
}

// ListChanges lists changes of settings, newest first; those that are not in force have the reason.
func (o *Ops) ListChanges(ctx context.Context, _ Caller, q ListChanges) (Page[settings.Change], error) {
	all, err := o.Settings.History(ctx)
	if err != nil {
		return Page[settings.Change]{}, err
	}
	slices.Reverse(all)
	all = slices.DeleteFunc(all, func(c settings.Change) bool { return q.Setting != "" && c.Setting != q.Setting })
	return PageOf(all, q.Paging, func(c *settings.Change) string { return fmt.Sprint(c.Revision, " ", c.Setting) })
}

// SetSettings are changes of settings.
type SetSettings struct {
	Settings settings.Patch `json:"settings" doc:"What is left out stays."`
	Version  *uint64        `json:"version,omitempty" doc:"That the change is for; absent = any."`
}

// SettingsChanged are changes that were stored.
type SettingsChanged struct {
	Changes []settings.Change `json:"changes" nullable:"false"`
	Version uint64            `json:"version"`
}

// SetSettings changes settings, all or none.
func (o *Ops) SetSettings(ctx context.Context, who Caller, q SetSettings) (SettingsChanged, error) {
	values := q.Settings.Flat()
	if len(values) == 0 {
		return SettingsChanged{}, invalid("settings", "give at least one setting")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := o.checkSetting(ctx, name, values[name]); err != nil {
			no := *RefusalOf(err)
			no.Field = "settings." + name
			return SettingsChanged{}, &no
		}
	}
	changes, err := o.Settings.Set(ctx, values, q.Version, who)
	switch {
	case err == nil:
		return SettingsChanged{changes, changes[0].Revision}, nil
	case errors.Is(err, registry.ErrUnrecorded):
		err = &Refusal{Code: UnknownOutcome, Message: "the settings are changed; " + err.Error() + "; read them again"}
	case !errors.Is(err, registry.ErrUnknown):
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	return SettingsChanged{}, err
}

// checkSetting checks a setting and its value, and that a campaign that is paused exists, so that a mistyped name is an error. A
// pause can always be ended, also while no lane answers.
func (o *Ops) checkSetting(ctx context.Context, setting string, value json.RawMessage) error {
	if _, err := settings.Check(setting, value); err != nil {
		return &Refusal{Code: wire.Invalid, Field: "setting", Message: err.Error()}
	}
	campaign, pauses := settings.Pauses(setting)
	if !pauses {
		return nil
	}
	if string(value) != "true" {
		state, err := o.Settings.Read(ctx)
		if err != nil {
			return err
		}
		if v, err := state.Value(setting); err == nil && string(v.Value) == "true" {
			return nil
		}
	}
	_, err := o.Queries.Campaign(ctx, campaign)
	var refused *client.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Outcome.Refusal == wire.CampaignNotFound:
		return &Refusal{Code: wire.CampaignNotFound, Field: "setting",
			Message: fmt.Sprintf("%s: there is no campaign %s, so nothing was set", setting, wire.Shorten(campaign, wire.MaxCampaignName))}
	}
	return fmt.Errorf("the campaign %s could not be looked up, so nothing was set: %w", campaign, err)
}
