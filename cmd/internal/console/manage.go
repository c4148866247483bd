package console

import (
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

var managePages = []page{
	{path: "/access", name: "access", title: "Access", nav: true, operation: access.OpManageKeys, load: func(v *view) any {
		return list[ops.Page[access.Key]](v, "/v1/keys")
	}},
	{path: "/settings", name: "settings", title: "Settings", nav: true, operation: access.OpReadSettings, load: loadSettings},
	{path: "/audit", name: "audit", title: "Audit", nav: true, operation: access.OpReadAudit, load: func(v *view) any {
		return list[ops.Page[audit.Entry]](v, "/v1/audit", "actor", v.value("actor"), "about", v.value("about"), "kind", v.value("kind"), "since", v.since("since"), "until", v.since("until"))
	}},
}

var manageActs = []act{
	{id: "createKey", title: "Make a key", fields: []string{"name", "role", "campaigns", "codes", "customers", "rate", "public", "origins"}, shows: true, then: "/access",
		about: "The secret is shown once. If it is lost, revoke the key and make another.",
		cli:   "scrip access create {name} --role {role} [--campaign {campaigns}] [--codes={codes}] [--customers={customers}] [--rate {rate}] [--public={public}] [--origin {origins}]"},
	{id: "rotateKey", title: "Replace", fields: []string{"overlap"}, shows: true, then: "/access",
		about: "The new key has the same name and rights. Its secret is shown once.", cli: "scrip access rotate {key} [--overlap {overlap}]"},
	{id: "revokeKey", title: "Revoke", then: "/access", about: "In force at every server within a second; streams and sessions in progress end. A key that was revoked stays so.",
		cli: "scrip access revoke {key}"},
	settingsAct(),
	pauseAct("pauseExpiry", "Pause expiry", "expiry", "true", "Nothing that expires in this campaign is announced until it is resumed. No coupon is valid for longer."),
	pauseAct("resumeExpiry", "Resume expiry", "expiry", "null", "What is due is announced at once."),
	pauseAct("pauseReminders", "Pause reminders", "reminder", "true", "No reminder of this campaign fires until they are resumed; those that are too late by then are dropped."),
	pauseAct("resumeReminders", "Resume reminders", "reminder", "null", "What is due fires at once; what is too late is dropped."),
}

// settingsAct changes any of the settings that are no pauses; the order is that of the form.
func settingsAct() act {
	a := act{id: "changeSettings", title: "Change settings", cleared: "default", edits: "/v1/settings", then: "/settings", about: "In force at all servers within a second, all or none. What is emptied goes back to its default."}
	for _, name := range []string{"reminder.rate", "reminder.batch", "reminder.concurrency", "reminder.grace", "http.rate", "http.burst",
		"push.merge", "push.cap", "push.quiet", "push.zone", "push.shards", "push.batch", "deadletter.quote", "clock.tolerance", "tables.keep", "backup.max_age"} {
		a.fields = append(a.fields, "settings."+name)
		a.cli += "[scrip config set " + name + " {settings." + name + "}; ]"
	}
	return a
}

// pauseAct is a pause of what is due in a campaign, which is a setting.
func pauseAct(id, title, of, value, about string) act {
	word := map[string]string{"true": "true", "null": "default"}[value]
	return act{id: id, of: "changeSettings", title: title, about: about, fields: []string{"campaign"},
		body: `{"settings":{"` + of + `.pause":{"{campaign}":` + value + `}}}`, cli: "scrip config set " + of + ".pause.{campaign} " + word}
}

// settingsData are those in force and their last changes.
type settingsData struct {
	Now     Part[ops.SettingsPage]
	Changes Part[ops.Page[settings.Change]]
	About   map[string]settings.Description
}

func loadSettings(v *view) any {
	d := settingsData{Now: get[ops.SettingsPage](v, "/v1/settings"), Changes: list[ops.Page[settings.Change]](v, "/v1/settings/changes"), About: map[string]settings.Description{}}
	for _, of := range settings.Describe() {
		d.About[of.Name] = of
	}
	return d
}

// since is an instant that a filter has, as /v1 takes it.
func (v *view) since(name string) string {
	text := v.value(name)
	if at, wrong := instant(text, v.value("zone")); wrong == "" {
		return plain(encoded(at))
	}
	return text
}
