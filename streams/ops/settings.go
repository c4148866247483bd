package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
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
	Settings []settings.Value `json:"settings" nullable:"false"`
	Revision uint64           `json:"revision" doc:"Of the last change."`
	Ignored  int              `json:"ignored" doc:"Changes that are not valid, or of a newer version."`
}

// GetSettings reads the settings in force.
func (o *Ops) GetSettings(ctx context.Context, _ Caller, q GetSettings) (SettingsPage, error) {
	state, err := o.Settings.Read(ctx)
	if err != nil {
		return SettingsPage{}, err
	}
	page := SettingsPage{Settings: state.Values(), Revision: state.Revision, Ignored: state.Ignored}
	if q.Setting != "" {
		v, err := state.Value(q.Setting)
		if err != nil {
			return SettingsPage{}, &Refusal{Code: wire.Invalid, Field: "setting", Message: err.Error()}
		}
		page.Settings = []settings.Value{v}
	}
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
	return PageOf(all, q.Paging, func(c *settings.Change) string { return strconv.FormatUint(c.Revision, 10) })
}

// SetSetting is one setting with its new value.
type SetSetting struct {
	Setting string `json:"setting"`
	Value   string `json:"value" doc:"default restores the default."`
}

// SetSetting changes one setting.
func (o *Ops) SetSetting(ctx context.Context, who Caller, q SetSetting) (settings.Change, error) {
	if err := o.checkSetting(ctx, q.Setting, q.Value); err != nil {
		return settings.Change{}, err
	}
	return o.set(ctx, who, q.Setting, q.Value)
}

// SettingChanges are changes that were stored.
type SettingChanges struct {
	Changes []settings.Change `json:"changes" nullable:"false"`
}

// SetSettings changes several settings: each field is one, and its new value. All are checked before the first one is stored;
// after a failure the refusal names those that are in force. The error is a *Refusal.
func (o *Ops) SetSettings(ctx context.Context, who Caller, fields Fields) (SettingChanges, error) {
	out := SettingChanges{Changes: []settings.Change{}}
	if err := who.Check(access.OpChangeSettings, ""); err != nil {
		return out, RefusalOf(err)
	}
	sorted := slices.Sorted(maps.Keys(fields))
	if len(sorted) == 0 {
		return out, &Refusal{Code: wire.Invalid, Message: "nothing to change; give at least one setting"}
	}
	values := make([]string, len(sorted))
	for i, name := range sorted {
		if err := json.Unmarshal(fields[name], &values[i]); err != nil || string(fields[name]) == "null" {
			return out, invalid(name, "must be a string")
		}
		if err := o.checkSetting(ctx, name, values[i]); err != nil {
			no := *RefusalOf(err)
			no.Field = name
			return out, &no
		}
	}
	for i, name := range sorted {
		change, err := o.set(ctx, who, name, values[i])
		if err != nil && len(out.Changes) > 0 {
			why := err.Error()
			for _, done := range slices.Backward(out.Changes) {
				why = done.Setting + " is changed; " + why
			}
			err = &Refusal{Code: UnknownOutcome, Message: why}
		}
		if err != nil {
			return out, RefusalOf(err)
		}
		out.Changes = append(out.Changes, change)
	}
	return out, nil
}

// set stores a change, which is recorded.
func (o *Ops) set(ctx context.Context, who Caller, setting, value string) (settings.Change, error) {
	change, err := o.Settings.Set(ctx, setting, value, who)
	switch {
	case err == nil, errors.Is(err, registry.ErrUnknown):
		return change, err
	case errors.Is(err, registry.ErrUnrecorded):
		return change, &Refusal{Code: UnknownOutcome, Message: setting + " is changed; " + err.Error() + "; read the settings again"}
	}
	return change, fmt.Errorf("%s was not changed: %w", setting, err)
}

// checkSetting checks a setting and its value, and that a campaign that is paused exists, so that a mistyped name is an error. A
// pause can always be ended, also while no lane answers.
func (o *Ops) checkSetting(ctx context.Context, setting, value string) error {
	if _, err := settings.Check(setting, value); err != nil {
		return &Refusal{Code: wire.Invalid, Field: "setting", Message: err.Error()}
	}
	campaign, pauses := settings.Pauses(setting)
	if !pauses {
		return nil
	}
	if value != "true" {
		state, err := o.Settings.Read(ctx)
		if err != nil {
			return err
		}
		if v, err := state.Value(setting); err == nil && v.Value == "true" {
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
