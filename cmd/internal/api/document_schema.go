package api

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// schemaNames are the names of schemas whose types are named for those who see their package, too.
var schemaNames = map[string]string{
	"domain.CampaignView": "Campaign", "readmodel.Entry": "HistoryEntry", "audit.Entry": "AuditEntry", "settings.Change": "SettingChange", "settings.Value": "Setting",
	"webhook.Endpoint": "Webhook", "ops.MadeWebhook": "WebhookWithSecret", "ops.MadeKey": "KeyWithSecret", "push.Position": "WebhookPosition",
	"readmodel.Letter": "DeadLetter", "readmodel.ShownLetter": "DeadLetterWithLine", "readmodel.LetterPage": "DeadLetterPage", "ops.WebhookLetter": "WebhookDeadLetter",
	"api.OneCustomer": "Customer", "api.Validated": "Validation", "api.Import": "ImportLine", "api.Retried": "RetriedDeadLetter",
	"status.Lane": "LaneStatus", "status.Server": "ServerStatus", "status.Limit": "ServerLimit", "status.Result": "Check",
}

// schemaName names the schemas of the document.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name := schemaNames[t.String()]; name != "" {
		return name
	}
	if strings.HasPrefix(t.Name(), "Page[") {
		return schemaName(t.Field(0).Type.Elem(), hint) + "Page"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// codes are those that a problem may have.
var codes = slices.Compact(slices.Sorted(slices.Values(append(texts(web.Codes()), texts(ops.Codes)...))))

// values are the texts that a type of text has.
var values = map[reflect.Type][]string{
	reflect.TypeFor[web.Code]():              codes,
	reflect.TypeFor[web.Effect]():            {string(web.NoEffect), string(web.UnknownEffect)},
	reflect.TypeFor[wire.Refusal]():          texts(slices.Collect(wire.Refusals())),
	reflect.TypeFor[access.Role]():           texts(access.Keyed),
	reflect.TypeFor[audit.Kind]():            texts(audit.Kinds),
	reflect.TypeFor[webhook.State]():         texts(webhook.States),
	reflect.TypeFor[readmodel.LetterState](): texts(readmodel.LetterStates),
	reflect.TypeFor[ops.JobState]():          texts(ops.JobStates),
}

// fieldValues are those of fields that are plain texts, by the name of the type in Go. Further fields have those of the log's field
// of the same name.
var fieldValues = map[string][]string{
	"CampaignView.status": domain.CampaignStatuses, "Entry.what": changes(), "Job.kind": ops.JobKinds(),
	"Problem.type": {"about:blank"}, "Validated.reason": append(texts(unusable), string(web.CodeNotValid)),
	"Import.refusal": texts(slices.Collect(wire.Refusals())), "CampaignChange.type": eventNames(func(s *wire.EventSpec) bool { return s.Campaign }), "CommandEvent.what": eventNames(func(*wire.EventSpec) bool { return true }), "Retried.state": texts(readmodel.LetterStates), "DeletedWebhook.state": {"deleted"},
}

func texts[T any](list []T) (all []string) {
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return all
}

// eventNames are the types of the events that are wanted.
func eventNames(wanted func(*wire.EventSpec) bool) (all []string) {
	for t := range wire.Events() {
		if wanted(t.Spec()) {
			all = append(all, t.Spec().Name)
		}
	}
	return all
}

// changes are what histories show.
func changes() []string {
	all := []string{"reminder_dropped"}
	for t := range wire.Events() {
		if what := t.Spec().Change; what != "-" {
			all = append(all, what)
		}
	}
	return all
}

// schema is the schema of an answer, or the reference to it.
func (a *API) schema(t reflect.Type) *huma.Schema {
	registry := a.document.Components.Schemas
	before := maps.Clone(registry.Map())
	schema := registry.Schema(t, true, "")
	for name, s := range registry.Map() {
		if before[name] == nil && s.Properties != nil {
			complete(registry.TypeFromRef("#/components/schemas/"+name), s)
			s.AdditionalProperties = nil // within /v1 answers only gain fields
		}
	}
	return schema
}

// complete adds to the schema of a type what huma does not read from it: the texts that fields may have; and the description of the
// log's field of the same name, where the type has none.
func complete(t reflect.Type, s *huma.Schema) {
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := s.Properties[name]
		if of == nil || of.Ref != "" {
			continue
		}
		if of.Description == "" {
			of.Description = wire.About(name)
		}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		allowed, listed := fieldValues[t.Name()+"."+name]
		switch {
		case listed:
		case values[kind] != nil:
			allowed = values[kind]
		case kind == reflect.TypeFor[string]():
			allowed = wire.OneOf(name)
		}
		if of.Enum == nil && of.Type == huma.TypeString {
			of.Enum = enum(allowed)
		}
		if of.Type == huma.TypeArray && strings.Contains(options, "omit") {
			of.Nullable = false
		}
	}
}

// enum are texts as a schema has them.
func enum(list []string) (all []any) {
	for _, one := range list {
		all = append(all, one)
	}
	return all
}

// named adds a schema to the document and returns the reference to it.
func (a *API) named(name string, s *huma.Schema) *huma.Schema {
	return define(a.document.Components.Schemas, name, s)
}

func define(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	r.Map()[name] = s
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// objectOf is the schema of an object with these fields and no others.
func objectOf(fields []wire.Description) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for _, f := range fields {
		s.Properties[f.Name] = schemaOf(f)
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

// schemaOf is the schema of a field.
func schemaOf(f wire.Description) *huma.Schema {
	s := text(f.About)
	s.Nullable = f.Nullable
	switch f.Value {
	case wire.NumberValue:
		least, most := float64(f.Least), float64(f.Most)
		s.Type, s.Format, s.Minimum = huma.TypeInteger, "int64", &least
		if f.Most > 0 {
			s.Maximum = &most
		}
		if f.Most > 0 && f.Most <= math.MaxInt32 {
			s.Format = "int32"
		}
	case wire.FlagValue:
		s.Type = huma.TypeBoolean
	case wire.TextsValue:
		s.Type, s.Items = huma.TypeArray, text("")
	case wire.CountsValue:
		s.Type, s.AdditionalProperties = huma.TypeObject, &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
	case wire.JSONValue:
		s.Type, s.Nullable = "", false
	case wire.InstantValue:
		s.Format = "date-time"
	default:
		if f.Bytes > 0 {
			least, most := 1, int(f.Bytes) // a text of so many bytes has no more characters
			s.MinLength, s.MaxLength = &least, &most
		}
		if s.Enum = enum(f.OneOf); f.Nullable && s.Enum != nil {
			s.Enum = append(s.Enum, nil)
		}
	}
	return s
}

// open makes the schema of a line of an answer accept further fields.
func open(s *huma.Schema) *huma.Schema {
	s.AdditionalProperties = nil
	return s
}
