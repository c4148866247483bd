package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

func (a *API) operatorRoutes() {
	Register(a, Route{Method: http.MethodGet, Path: "/v1/status", ID: "getStatus", Tag: "operation", Summary: "Show the status of servers and lanes",
		About:     "As `scrip status` shows it. ready is false while a lane has no owner or a server is not ready.",
		Operation: access.OpReadStatus}, a.getStatus)
	Register(a, Route{Method: http.MethodGet, Path: "/v1/settings", ID: "getSettings", Tag: "operation", Summary: "Show the settings in force",
		Operation: access.OpReadSettings}, a.getSettings)
	Register(a, Route{Method: http.MethodPatch, Path: "/v1/settings", ID: "changeSettings", Tag: "operation", Summary: "Change settings while servers run",
		About: "Each member is a setting and its value, as in `scrip config set`; the value default restores the default. All are checked before the first one is stored. " +
			"They are in force at all servers within a second.",
		Operation: access.OpChangeSettings}, a.changeSettings)
	a.letterRoutes()
	a.keyRoutes()
	a.webhookRoutes()
	Register(a, Route{Method: http.MethodGet, Path: "/v1/audit", ID: "readAudit", Tag: "operation", Summary: "Read the audit stream",
		About:     "Log-ins, changes of keys, settings and webhooks, exports, and look-ups of codes in clear: the newest entries that are selected, oldest first.",
		Operation: access.OpReadAudit}, a.readAudit)
}

// StatusBody is the status of a log.
type StatusBody struct{ status.Status }

// TransformSchema lets later versions add fields.
func (StatusBody) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

func (a *API) getStatus(ctx context.Context, _ *struct{}) (*struct{ Body StatusBody }, error) {
	st, err := a.Status(ctx)
	if err != nil {
		return nil, unavailable("the status cannot be read", err)
	}
	return &struct{ Body StatusBody }{StatusBody{*st}}, nil
}

// Settings are the run-time settings in force.
type Settings struct {
	Body struct {
		Settings []settings.Value `json:"settings" nullable:"false"`
		Revision uint64           `json:"revision" doc:"Of the last change."`
		Ignored  int              `json:"ignored" doc:"Changes that are not valid, or of a newer version."`
	}
}

func (a *API) getSettings(ctx context.Context, _ *struct{}) (*Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	state, err := a.Options.Settings.Read(ctx)
	if err != nil {
		return nil, unavailable("the settings cannot be read", err)
	}
	out := &Settings{}
	out.Body.Settings, out.Body.Revision, out.Body.Ignored = state.Values(), state.Revision, state.Ignored
	return out, nil
}

// SettingChanges are changes that were stored.
type SettingChanges struct {
	Body struct {
		Changes []settings.Change `json:"changes" nullable:"false"`
	}
}

func (a *API) changeSettings(ctx context.Context, in *struct{ Body map[string]string }) (*SettingChanges, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	names := slices.Sorted(maps.Keys(in.Body))
	if len(names) == 0 {
		return nil, web.New(web.Code(wire.Invalid), "nothing to change; give at least one setting").At("body", "give at least one setting")
	}
	for _, name := range names {
		if _, err := settings.Check(name, in.Body[name]); err != nil {
			return nil, web.New(web.Code(wire.Invalid), err.Error()).At("body."+name, err.Error())
		}
		if err := a.mayPause(ctx, name, in.Body[name]); err != nil {
			return nil, err
		}
	}
	out := &SettingChanges{}
	for _, name := range names {
		change, err := a.Options.Settings.Set(ctx, name, in.Body[name], principal(ctx).Name)
		switch {
		case err != nil && len(out.Body.Changes) == 0 && !errors.Is(err, settings.ErrUnknown):
			return nil, unavailable(name+" was not changed", err)
		case err != nil:
			return nil, partlyChanged(out.Body.Changes, name+": "+err.Error())
		}
		out.Body.Changes = append(out.Body.Changes, change)
		if err := a.record(ctx, audit.Settings, "set "+name, change.Was+" → "+change.Value); err != nil {
			return nil, partlyChanged(out.Body.Changes, err.Error())
		}
	}
	return out, nil
}

// partlyChanged is the problem of a change of settings of which some part may be in force.
func partlyChanged(done []settings.Change, why string) error {
	for i := len(done) - 1; i >= 0; i-- {
		why = done[i].Setting + " is changed; " + why
	}
	return web.New(web.UnknownOutcome, why+"; see GET /v1/settings")
}

// mayPause refuses to pause a campaign that does not exist, so that a mistyped name is an error.
func (a *API) mayPause(ctx context.Context, setting, value string) error {
	campaign, pauses := settings.Pauses(setting)
	if !pauses || value != "true" {
		return nil
	}
	if _, err := a.Queries.Campaign(ctx, campaign); err != nil {
		return unanswered("campaign "+campaign, err)
	}
	return nil
}

// AuditList is a part of the audit stream.
type AuditList struct {
	Body struct {
		Entries []audit.Entry `json:"entries" nullable:"false" doc:"Oldest first."`
		More    bool          `json:"more,omitempty" doc:"There are older ones: ask with an earlier until."`
	}
}

func (a *API) readAudit(ctx context.Context, in *struct {
	Actor string    `query:"actor" maxLength:"128" doc:"Name or id of a key."`
	Kind  string    `query:"kind" enum:"login,keys,settings,export,lookup,webhooks,jobs"`
	Since time.Time `query:"since"`
	Until time.Time `query:"until" doc:"Not included."`
	Limit int       `query:"limit" minimum:"1" maximum:"100" default:"100"`
}) (*AuditList, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	all, more, err := a.Audit.Read(ctx, audit.Filter{Actor: in.Actor, Kind: audit.Kind(in.Kind), Since: in.Since, Until: in.Until}, in.Limit)
	if err != nil {
		return nil, unavailable("the audit stream cannot be read", err)
	}
	out := &AuditList{}
	out.Body.Entries, out.Body.More = append([]audit.Entry{}, all...), more
	return out, nil
}
