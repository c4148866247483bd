package api

import (
	"maps"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// position are the fields in front of an event that is read from the log: its identity there.
var position = []wire.Description{
	{Name: "lane", About: "With sequence and line, the identity of the event in its log.", Value: wire.NumberValue, Required: true},
	{Name: "sequence", About: "Of the message of the lane's event stream.", Value: wire.NumberValue, Required: true},
	{Name: "line", About: "Within it, from 1.", Value: wire.NumberValue, Required: true},
}

// typed is a field type with one value.
func typed(name string) wire.Description {
	return wire.Description{Name: "type", About: "What the line has.", OneOf: []string{name}, Required: true}
}

// eventLine is the schema of an event as GET /v1/events and scrip replay have it: with its position in front. A rejected command has
// a position of its own, whose names are longer there.
func eventLine(t wire.EventType) *huma.Schema {
	fields := append([]wire.Description{typed(t.String())}, position...)
	for _, f := range t.Describe() {
		if t == wire.CommandRejected && (f.Name == "sequence" || f.Name == "line") {
			f.Name = "command_" + f.Name
		}
		fields = append(fields, f)
	}
	return open(objectOf(fields))
}

// eventSchema is the JSON Schema of these lines.
func eventSchema() any {
	one, all := []map[string]string{}, map[string]*huma.Schema{}
	for t := range wire.Events() {
		all[t.String()] = eventLine(t)
		one = append(one, map[string]string{"$ref": "#/$defs/" + t.String()})
	}
	return map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "An event of scrip, version " + wire.ContractVersion,
		"oneOf": one, "$defs": all}
}

// union adds a schema of values that have one of some forms, which are the references to their schemas by type.
func (a *API) union(name string, forms map[string]*huma.Schema) *huma.Schema {
	of := &huma.Schema{Discriminator: &huma.Discriminator{PropertyName: "type", Mapping: map[string]string{}}}
	for _, value := range slices.Sorted(maps.Keys(forms)) {
		of.OneOf, of.Discriminator.Mapping[value] = append(of.OneOf, forms[value]), forms[value].Ref
	}
	return a.named(name, of)
}

// eventStreamLine is the schema of a line of GET /v1/events.
func (a *API) eventStreamLine() *huma.Schema {
	cursor := wire.Description{Name: "cursor", About: "Send it as after to continue after all lines before it.", Required: true}
	reason := wire.Description{Name: "reason", About: "Why the stream ended while it followed.", Required: true}
	forms := map[string]*huma.Schema{
		"cursor": a.named("CursorLine", open(objectOf([]wire.Description{typed("cursor"), cursor}))),
		"end":    a.named("EndLine", open(objectOf([]wire.Description{typed("end"), reason, cursor}))),
	}
	for t := range wire.Events() {
		forms[t.String()] = a.named(typeName(t.String())+"Event", eventLine(t))
	}
	return a.union("EventLine", forms)
}

// commandLine is the schema of a line of POST /v1/commands.
func (a *API) commandLine() *huma.Schema {
	forms := map[string]*huma.Schema{}
	for t := range wire.Commands() {
		if wire.ScopeProducer.Allows(t) {
			fields := []wire.Description{{Name: "id", About: wire.About("id"), Bytes: wire.MaxCommandID, Required: true}, typed(t.String())}
			forms[t.String()] = a.named(typeName(t.String())+"Line", objectOf(append(fields, t.Describe()...)))
		}
	}
	return a.union("CommandLine", forms)
}

// webhooks adds what endpoints of webhooks get.
func (a *API) webhooks() {
	a.document.Webhooks = map[string]*huma.PathItem{}
	form := func(name string, data *huma.Schema) *huma.Schema {
		s := open(objectOf([]wire.Description{typed(name), {Name: "timestamp", About: "When it happened.", Value: wire.InstantValue, Required: true},
			{Name: "id", About: "Of an event in a batch: the webhook-id that it has in a request of its own."}}))
		s.Properties["data"], s.Required = data, append(s.Required, "data")
		return a.named(typeName(name)+"Webhook", s)
	}
	add := func(name, summary string, body *huma.Schema) {
		failed := open(&huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
			"failed": {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger}, Description: "Indexes of events of a batch that were not delivered."}}})
		op := &huma.Operation{OperationID: "webhook" + typeName(name), Summary: summary, Tags: []string{"webhooks"},
			Security: []map[string][]string{}, RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
				jsonType[0]: {Schema: body}}},
			Parameters: []*huma.Param{
				{Name: "webhook-id", In: "header", Required: true, Schema: text(""), Description: "The same at each try: deduplicate by it."},
				{Name: "webhook-timestamp", In: "header", Required: true, Schema: text(""), Description: "Of the try, in seconds since 1970."},
				{Name: "webhook-signature", In: "header", Required: true, Schema: text(""),
					Description: "v1, and the base64 of HMAC-SHA256 over ID.TIMESTAMP.BODY, as Standard Webhooks have it; two, with a blank between them, after a rotation."},
			},
			Responses: map[string]*huma.Response{
				"200": {Description: "Delivered, as any other 2xx."},
				"207": {Description: "Delivered, but for some events of a batch.", Content: map[string]*huma.MediaType{jsonType[0]: {Schema: failed}}},
				"4XX": {Description: "Not delivered: 410 disables the webhook, 400, 413 and 422 refuse these events, after the others they are sent again."},
			}}
		exampleOf(op)
		a.document.Webhooks[name] = &huma.PathItem{Post: op}
	}
	forms := map[string]*huma.Schema{}
	for _, name := range webhook.Types() {
		var data []wire.Description
		for _, f := range wire.EventNamed([]byte(name)).Describe() {
			if slices.Contains(webhook.SecretFields, f.Name) {
				f.Required, f.About = false, "Of webhooks with codes. "+f.About
			}
			if f.Name != "at" {
				data = append(data, f)
			}
		}
		forms[name] = form(name, open(objectOf(data)))
		add(name, "An event of type "+name, forms[name])
	}
	batch := open(objectOf([]wire.Description{{Name: "events", Required: true}}))
	batch.Properties["events"] = &huma.Schema{Type: huma.TypeArray, Items: a.union("EventOfBatch", forms)}
	add(webhook.TypeEvents, "Several events, to webhooks with a batch above 1", form(webhook.TypeEvents, batch))
	add(webhook.TypeTest, "A test request", form(webhook.TypeTest, open(objectOf([]wire.Description{{Name: "webhook", About: "The id of the webhook.", Required: true}}))))
}
